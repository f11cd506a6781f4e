"""Bodies that a library decodes one by one, as structs. One that it cannot decode, or whose values do not fit the columns, becomes null.

Strangers write bodies, and a decoder of somebody else's answers their bytes with whatever it stumbles over (EOFError, IndexError,
UnicodeDecodeError, …). So any exception about one body means that this body does not fit, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


def structs(bodies: pa.Array, decode: Callable[[bytes], Row], kind: pa.StructType) -> pa.Array:
    rows: list[Row | None] = []
    for body in bodies.to_pylist():
        try:
            rows.append(decode(body))
        except Exception:
            rows.append(None)
    found: list[pa.Array] = []
    _halved(rows, kind, found)
    return pa.concat_arrays(found) if found else pa.nulls(0, kind)


def _halved(rows: Sequence[Row | None], kind: pa.StructType, found: list[pa.Array]) -> None:
    """A value may be decoded well and yet be too large for its column: those rows are found by halving."""
    if not rows:
        return
    try:
        found.append(pa.array(rows, kind))
        return
    except _UNFIT:
        pass
    if len(rows) == 1:
        found.append(pa.nulls(1, kind))
        return
    half = len(rows) // 2
    _halved(rows[:half], kind, found)
    _halved(rows[half:], kind, found)
