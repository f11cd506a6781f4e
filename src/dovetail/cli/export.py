"""Write queues to Parquet files, without Spark: what was pushed to them, read through a tap, or (--waiting) what waits now. Run again, it
goes on behind what it has exported; stopped at any moment, it neither loses nor doubles a message. Any Spark, pandas, DuckDB or Polars
reads the files, and so does `dovetail pipeline run replay`. It needs its extra: pip install 'dovetail[export]'."""

from __future__ import annotations

import argparse

from ..errors import BadRequest
from ..spark.pipelines import flags, load

EXAMPLES = """\
examples:
  dovetail export --queue 'orders*' --target ./orders                what the tap "export" has not exported yet
  dovetail export --queue orders --target ./orders --every 10s       until it is stopped
  dovetail export --queue orders-dead --target ./dead --waiting      what waits now; nothing is taken from the queue
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    try:
        flags.add(parser, load("export").settings)
    except ModuleNotFoundError as error:
        raise flags.missing(error, "export") from None


def run(given: argparse.Namespace) -> int:
    pipeline = load("export")
    try:
        pipeline.run(flags.told(given, pipeline), flags.say)
    except OSError as error:
        raise BadRequest(str(error)) from None
    return 0
