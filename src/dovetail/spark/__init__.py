"""Spark reads queues: `spark.read` and `spark.readStream.format("dovetail")`, found by Spark itself; and what stands around them.

    import dovetail.spark

    spark = dovetail.spark.session()                    a session on this machine, also where there is no Java
    options = {"endpoint": "dovetail://127.0.0.1:9325", "queue": "orders", "tap": "archive"}
    dovetail.spark.follow(spark, **options)             releases what a query of these options has finished
    stream = spark.readStream.format("dovetail").options(**options).load()

This file loads neither pyspark nor pyarrow before something is used that needs them. (No module beside it has a name of these: it would
take the place of the function as soon as it is loaded.)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.spark.following import follow, release
    from dovetail.spark.progress import lag
    from dovetail.spark.sessions import session

__all__ = ["follow", "lag", "release", "session"]

_HOMES = {"follow": "following", "release": "following", "lag": "progress", "session": "sessions"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dovetail.spark.versions import require

    require()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
