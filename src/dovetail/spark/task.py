"""What runs inside of a task: read one range, in a process that Spark uses for many tasks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dovetail.spark import fetch, typed
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options
from dovetail.spark.reach import Reach

_kept: list[tuple[Options, Reach]] = []
"""The line of the task before: greeting a node anew costs as much as reading some thousand messages. One set of options at a time."""


def read(options: Options, schema: pa.Schema, part: Range, addresses: Sequence[str]) -> Iterator[pa.RecordBatch]:
    reach = _taken(options)
    reach.know(list(addresses))
    for batch in fetch.read(reach, options, part):
        yield typed.with_bodies(batch, options.bodies, schema) if options.bodies is not None and options.typed else batch
    _kept[:] = [(options, reach)]


def _taken(options: Options) -> Reach:
    """Taken out while it is used: two reads at once in one process never share a line."""
    if _kept:
        known, reach = _kept.pop()
        if known == options:
            return reach
        reach.drop()
    return options.reach()
