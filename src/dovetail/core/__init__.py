"""The pure heart: what is true of queues. No clock, no I/O, no asyncio, no randomness; `now` is a parameter."""
