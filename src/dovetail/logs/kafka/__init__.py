"""Kafka as the engine of a shared log (the seam is in logs/shared/engine.py)."""
