"""Ways of keeping lanes on an engine, behind one seam (store.py)."""
