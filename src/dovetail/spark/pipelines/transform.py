"""A function of somebody's own over Arrow batches, which may fail on some rows: good neighbours pass, what it fails on is set apart with
the error. Plain Arrow; knows neither Spark nor files.

    def enrich(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch        in the columns of the source, and those that were declared

Rows may become fewer or more. Where the function fails, it is asked for each half again, down to the row that it fails on: of n rows one is
found in about log₂ n more calls. So a row is judged by itself, and may be seen more than once. (Refused: one call for each row. It costs
every good batch what only bad ones should cost.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from dovetail.errors import BadRequest
from dovetail.spark import rows
from dovetail.spark.pipelines.deadletter import accused, text_of

Function = Callable[[pa.RecordBatch], Any]

FAILED = "failed"
"""The column that says which rows of an outcome are set apart."""


class Misshapen(BadRequest):
    """What a function gives is no batch of the right columns: no fault of a row."""


class Transform:
    """What runs in a task. `schema` is that of the outcome, `failed` included."""

    def __init__(self, name: str, function: Function, schema: pa.Schema, *, apart: bool, failures_max: int) -> None:
        self.name = name
        self.function = function
        self.schema = schema
        self.apart = apart
        """Whether there is a place for what it fails on."""
        self.failures_max = failures_max

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failures = 0
        for batch in batches:
            for some, outcome in tried(self._given, batch):
                if not isinstance(outcome, Exception):
                    yield outcome
                    continue
                failures += 1
                what = f"{self.name} fails on message {some['sequence'][0]} of {some['queue'][0]}: {text_of(outcome)}"
                if not self.apart:
                    raise BadRequest(f"{what}. With a queue for dead letters (dead) the pipeline sets it apart and goes on") from outcome
                if failures > self.failures_max:
                    raise BadRequest(
                        f"{what}. That is one more than {self.failures_max} in one task: a fault of the function?"
                    ) from outcome
                yield self._apart(some, outcome)

    def _given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = shaped(self.function(batch), self.schema)
        # What no message can be fails here, where it is one row's fault, and not in the sink, where it would be the batch's.
        rows.messages_of(given, [name for name in ("body", "group", "attributes", "delay") if name in given.schema.names])
        return given

    def _apart(self, row: pa.RecordBatch, error: Exception) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {name: row.column(name) for name in row.schema.names}
        made["attributes"] = pa.array([accused(row, error)], self.schema.field("attributes").type)
        made[FAILED] = pa.array([True])
        columns = [made[one.name].cast(one.type) if one.name in made else pa.nulls(1, one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def tried(function: Function, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Stretches of the rows, in their order: each with what the function gives for it, or one row with why it fails."""
    try:
        given = function(batch)
    except (Misshapen, MemoryError):
        raise
    except Exception as error:
        if batch.num_rows == 1:
            yield batch, error
            return
        half = batch.num_rows // 2
        yield from tried(function, batch.slice(0, half))
        yield from tried(function, batch.slice(half))
        return
    yield batch, given


def shaped(given: Any, schema: pa.Schema) -> pa.RecordBatch:
    """What a function gave, in the columns of the outcome."""
    if isinstance(given, pa.Table):
        together = given.combine_chunks().to_batches()
        given = together[0] if together else pa.RecordBatch.from_pylist([], schema=given.schema)
    if not isinstance(given, pa.RecordBatch):
        raise Misshapen(f"the function gives {type(given).__name__}, and not a pyarrow.RecordBatch")
    wanted = [name for name in schema.names if name != FAILED]
    if missing := [name for name in wanted if name not in given.schema.names]:
        raise Misshapen(f"the function leaves out {', '.join(missing)}; it keeps the columns that it gets and adds those that are declared")
    if more := [name for name in given.schema.names if name not in wanted]:
        raise Misshapen(f"the function gives {', '.join(more)}, which is not declared (columns)")
    good = pa.repeat(pa.scalar(False), given.num_rows)
    columns = [good if one.name == FAILED else given.column(one.name).cast(one.type) for one in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def function_of(name: str) -> Function:
    """`module:function`, from what is installed or from the folder where one is. A module of that folder travels to the tasks with the
    function, so that executors need no copy of it."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise BadRequest(f"function: module:function, not {name!r}")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise BadRequest(f"function: {module_name!r} cannot be imported: {error}") from None
    finally:
        sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadRequest(f"function: there is no function {function_name!r} in {module_name!r}")
    if Path(module.__file__ or "/").parent == Path(here):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # pyspark's copy has no types
    made: Function = function
    return made
