"""The verbs that every door calls. Knows the store seam, never an engine."""
