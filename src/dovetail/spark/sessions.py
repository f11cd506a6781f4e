"""A Spark session on this machine, with what Dovetail needs set and a Java found. On a cluster sessions come from the cluster; nothing here
is needed there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from dovetail.spark import java

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
}


def session(name: str = "dovetail", *, master: str = "local[2,4]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none. `local[2,4]` is two tasks at a time, each tried four times. Below spark-submit
    it is the one that was submitted: where it runs, and with what, has been said there."""
    if java.submitted():
        return SparkSession.builder.appName(name).getOrCreate()
    given = {**SETTINGS, **(settings or {})}
    # Spark would take the first python3 of the PATH for its workers, where there may be no Dovetail.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java.ready({"spark.master": master, **given})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
