"""A history: what clients asked and were told, in the order in which it happened. Checkers read nothing else.

    {"process": 3, "type": "invoke", "verb": "send", "value": {"queue": "plain", "body": "3-17"}, "time": 812733}

A process does one thing at a time: an *invoke*, then what became of it. *ok*: it happened. *fail*: it did **not** happen; only an error
that is known to come before any effect says so. *info*: nobody knows, and it may take effect at any time later; whoever asked goes on as
another process. Times are nanoseconds of the machine's monotonic clock.

| verb | asked | told |
| --- | --- | --- |
| send | queue, body, and where they matter group, delay_ms, number | sequence |
| receive | queue, most, lease_ms, wait_ms, and perhaps delete | messages: body, sequence, receives, receipt |
| complete, requeue, release, extend | queue, body, receipt (extend: lease_ms) | done |
| counts | queue | visible, delayed, leased, reserved |
| read, write | register | value |
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...errors import BadRequest

Type = Literal["invoke", "ok", "fail", "info"]
FOREVER = 1 << 62
"""The end of a call of which nobody knows what became."""
MS = 1_000_000


class Op(NamedTuple):
    process: int
    type: Type
    verb: str
    value: Mapping[str, Any]
    time: int


class Call(NamedTuple):
    """An invoke and what became of it."""

    process: int
    verb: str
    asked: Mapping[str, Any]
    told: Mapping[str, Any]
    began: int
    ended: int
    """FOREVER where nobody knows."""
    outcome: Literal["ok", "fail", "info"]

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


class History:
    """Written while it happens. A process that was told *info* gets a new number by itself: keep what `invoke` answers."""

    def __init__(self, ops: Iterable[Op] = (), now: Any = time.monotonic_ns) -> None:
        self.ops = list(ops)
        self._now = now
        self._processes = max((op.process for op in self.ops), default=-1) + 1

    def process(self) -> int:
        """A number for somebody new."""
        self._processes += 1
        return self._processes - 1

    def invoke(self, process: int, verb: str, **value: Any) -> Op:
        self.ops.append(Op(process, "invoke", verb, value, self._now()))
        return self.ops[-1]

    def ended(self, invoked: Op, type: Type, **value: Any) -> int:
        """What became of it; the process as which whoever asked goes on."""
        self.ops.append(Op(invoked.process, type, invoked.verb, value, self._now()))
        return self.process() if type == "info" else invoked.process

    def calls(self) -> list[Call]:
        return calls(self.ops)


def calls(ops: Iterable[Op]) -> list[Call]:
    """Each invoke with its end, in the order of the invokes."""
    open_: dict[int, tuple[int, Op]] = {}
    made: dict[int, Call] = {}
    over: set[int] = set()
    for index, op in enumerate(ops):
        if op.type == "invoke":
            if op.process in open_ or op.process in over:
                raise BadRequest(f"process {op.process} asks while it waits for an answer, or after one that is not known: op {index}")
            open_[op.process] = index, op
            continue
        if op.process not in open_ or open_[op.process][1].verb != op.verb:
            raise BadRequest(f"process {op.process} is told about what it did not ask: op {index}")
        at, asked = open_.pop(op.process)
        if op.type == "info":
            over.add(op.process)
        ended = FOREVER if op.type == "info" else op.time
        made[at] = Call(op.process, op.verb, asked.value, op.value, asked.time, ended, op.type)
    for at, asked in open_.values():
        made[at] = Call(asked.process, asked.verb, asked.value, {}, asked.time, FOREVER, "info")
    return [made[at] for at in sorted(made)]


# As files: JSON lines, or Arrow where the name ends so


def lines(ops: Iterable[Op]) -> Iterator[str]:
    for op in ops:
        yield json.dumps(op._asdict(), separators=(",", ":"))


def write(ops: Iterable[Op], path: Path) -> None:
    if path.suffix == ".arrow":
        import pyarrow as pa
        from pyarrow import ipc

        rows = [(op.process, op.type, op.verb, json.dumps(op.value, separators=(",", ":")), op.time) for op in ops]
        columns = list(zip(*rows, strict=True)) or [()] * len(Op._fields)
        kinds = (pa.int32(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        table = pa.table(dict(zip(Op._fields, arrays, strict=True)))
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)
        return
    path.write_text("".join(f"{line}\n" for line in lines(ops)), encoding="utf-8")


def read(path: Path) -> list[Op]:
    if path.suffix == ".arrow":
        from pyarrow import ipc

        with ipc.open_file(path) as file:
            rows = file.read_all().to_pylist()
        return [Op(**{**row, "value": json.loads(row["value"])}) for row in rows]
    return [_op(line, number) for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)]


def _op(line: str, number: int) -> Op:
    try:
        made = Op(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise BadRequest(f"line {number} is no operation: {error}") from None
    if made.type not in ("invoke", "ok", "fail", "info") or not isinstance(made.value, dict):
        raise BadRequest(f"line {number} is no operation: {line[:200]}")
    return made
