"""Logs: ordered, durable sequences of entries. They know bytes and positions, never queues, leases or the core."""
