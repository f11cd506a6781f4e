"""Breaking it on purpose: what clients saw while something was broken, and whether every promise held.

history      what clients asked and were told, as data
checkers/    one for each promise: a history in, a verdict out
plan         what shall be broken when, as data · plans: those that have a name
proxy        a wire that is cut, slow or lossy
power        a disk that keeps what was synced, and nothing else
nodes        processes that are killed, paused and started again
work         clients that send, receive and settle, and write the history
run          a plan, applied to nodes under load, healed, drained and judged
"""
