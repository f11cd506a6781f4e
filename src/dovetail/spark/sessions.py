"""A Spark session on this machine, with what Dovetail needs set and a Java found. On a cluster sessions come from the cluster; nothing here
is needed there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from dovetail.spark import java

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
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
    spark = builder.getOrCreate()
    _checkpoint_quickly(spark)
    return spark


def _checkpoint_quickly(spark: SparkSession) -> None:
    """Where a checkpoint lies on this machine, Spark's own choice starts the programs `chmod` and `readlink` for every file: two thirds of
    what a small micro-batch costs (67 of 106 ms here). The other way that Spark has starts one for each file, writes the same files, and
    each whole and at once, too (30 ms). It has no name that Spark promises, so it is left alone where it is not found."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    if spark.conf.get(MANAGER, None) is None and jvm.org.apache.spark.util.Utils.classIsLoadable(QUICK):
        spark.conf.set(MANAGER, QUICK)
