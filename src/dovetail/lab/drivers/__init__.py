"""Drivers: one file for each engine, ours and peers."""
