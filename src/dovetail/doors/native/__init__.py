"""The native door: a binary, pipelined, batch-first protocol (docs/protocol.md).

    bounds      how much one connection may ask for
    frames      the frame, the hello, and the reader that finds frames in bytes
    fields      the small parts of payloads
    requests    every request, and its bytes
    answers     every answer, and its bytes
    refusals    every error, by its number
    codec       all of these under one name: what a client imports

Nothing is imported here, so that a client that takes the codec takes no server along.
"""
