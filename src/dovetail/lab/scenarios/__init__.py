"""Scenarios: one file for each, with one declared object called SCENARIO."""
