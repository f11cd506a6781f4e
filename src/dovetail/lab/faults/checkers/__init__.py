"""One checker for each promise, in a file of its own: calls in, a verdict out, in at most n log n steps. None believes more than it was
told: what is not known may have happened or not, whichever is better for whom it judges."""

from __future__ import annotations
