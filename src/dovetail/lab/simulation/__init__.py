"""The real core, stores and service, many nodes of them, in one thread and in a time of our own: what happens follows from a seed.

loop       an event loop without sockets, whose time jumps; whoever runs in it can be put to sleep, or killed between two steps
service    the log service that nodes share: it loses, doubles, reorders and delays what is published, and elects
nodes      nodes on it, with clocks of their own
clients    what clients do, with the words of lab/faults
run        a seed: nodes under load, broken, healed, drained and judged by the checkers of lab/faults
"""
