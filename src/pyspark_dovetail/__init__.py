"""Where Spark looks by itself: it imports every top-level module called pyspark_… and takes its DefaultSource, so that
`format("dovetail")` works without anything being registered.

Spark imports this to find *any* Python source, also somebody else's. So it never fails when it is imported: what is wrong is said when
`format("dovetail")` is used.
"""

from __future__ import annotations

from typing import Any

from dovetail.spark.versions import complaint, installed

_wrong = complaint(installed())

if _wrong is None:
    from dovetail.spark.source import DovetailSource as DefaultSource
else:
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        @classmethod
        def name(cls) -> str:
            return "dovetail"

        def __init__(self, options: dict[str, Any]) -> None:
            raise RuntimeError(_wrong)


__all__ = ["DefaultSource"]
