"""A Parquet file whose row groups have a good size, whatever the size of what comes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, BYTES = 131_072, 64 << 20
"""What is gathered before a row group is written."""


class RowGroups:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._held: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        if sum(one.num_rows for one in self._held) >= ROWS or sum(one.nbytes for one in self._held) >= BYTES:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self._held)
        self._held.clear()
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """The file is whole."""
        if self._held:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
