"""Logs that several nodes share: one log over a tiny seam to whatever replicates (engine.py says what an engine supplies)."""
