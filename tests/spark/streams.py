"""Queries that start on slow machines, too."""

from __future__ import annotations

import time
from typing import Any

TRIES = 20
LATE = "Python worker failed to connect back"
"""Spark gives the Python process of a source ten seconds to start and has no setting for it. A query that ends so has begun nothing."""


def started(writer: Any) -> Any:
    """The query, behind its first batch at least, or ended. There must be something for it to read."""
    for _ in range(TRIES):
        query = writer.start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.05)
        if LATE not in str(query.exception()):
            break
    return query
