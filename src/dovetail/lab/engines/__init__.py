"""Real engines on this machine's loopback, from packages: for tests, for examples, and for people who want to see one work."""
