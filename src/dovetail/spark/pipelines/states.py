"""What a stream keeps from batch to batch, of our own making: the tables behind each batch, as one file, whole or not there.

    folder/000000000012.parquet     what is known behind batch 12

Batch N is made of what is known behind the batches before it and of its own rows, and of nothing else: run again, it comes to the same. So
two are kept, and a batch that died begins with the one before. (Refused: Spark's own stateful operators. They keep a row for each key and
drop what is late without a word, and nobody can open what they keep.)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.spark.pipelines.published import move

KEPT = 2


class States:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def before(self, batch: int) -> Mapping[str, pa.Table]:
        """The tables behind the batch before; none before the first."""
        found = max((one for one in self._batches() if one < batch), default=None)
        if found is None:
            return {}
        row = pq.read_table(self._file(found), partitioning=None)
        return {name: pa.ipc.open_stream(row[name][0].as_buffer()).read_all() for name in row.schema.names}

    def write(self, batch: int, tables: Mapping[str, pa.Table]) -> None:
        """Durably and at once; what no batch will ask for again goes."""
        made = {}
        for name, table in tables.items():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            made[name] = pa.array([sink.getvalue().to_pybytes()], pa.large_binary())
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self._file(batch).with_suffix(".new")
        pq.write_table(pa.table(made), new)
        move(new, self._file(batch))
        for old in sorted(one for one in self._batches() if one < batch)[: -(KEPT - 1)]:
            self._file(old).unlink()

    def last(self) -> int:
        """The batch whose tables are the newest; −1 where there are none."""
        return max(self._batches(), default=-1)

    def _batches(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.parquet")]

    def _file(self, batch: int) -> Path:
        return self.folder / f"{batch:012d}.parquet"
