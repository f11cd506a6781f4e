"""The same batches as transactions of a Delta table: a batch appears as a whole, once, for every reader of Delta.

The deltalake package writes the table's log; the files are those that Spark has staged. The transaction names the archive and the number of
the batch, and Delta remembers the last number: a replay finds it there. Files of a batch that died before its transaction belong to nobody.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.spark import shape
from dovetail.spark.pipelines.published import STAGED, move, staged_files

PARTITIONS = ["queue", "hour"]


class DeltaPublished:
    def __init__(self, target: Path, name: str, columns: pa.Schema | None = None) -> None:
        """`columns`: other ones than those of a queue."""
        self.target = target
        self.name = name
        self.schema = schema() if columns is None else columns.append(pa.field("hour", pa.string()))

    def staging(self, batch: int) -> Path:
        return self.target / STAGED / f"{self.name}-{batch:012d}"

    def done(self, batch: int) -> bool:
        table = self._table()
        last = table.transaction_version(self.name) if table is not None else None
        return last is not None and last >= batch

    def publish(self, batch: int) -> Sequence[str]:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        if self.done(batch):
            return []
        actions = []
        for staged in staged_files(self.staging(batch)):
            folder = staged.parent.relative_to(self.staging(batch))
            file = folder / f"{uuid.uuid4()}.parquet"
            rows = pq.read_metadata(staged).num_rows
            move(staged, self.target / file)
            stat = (self.target / file).stat()
            values = dict(part.split("=", 1) for part in folder.parts)
            told = {name: unquote(value) for name, value in values.items()}
            actions.append(AddAction(str(file), stat.st_size, told, int(stat.st_mtime * 1000), True, json.dumps({"numRecords": rows})))
        if actions:
            table = self._table() or self._made()
            once = CommitProperties(app_transactions=[Transaction(self.name, batch)])
            table.create_write_transaction(actions, "append", self.schema, PARTITIONS, commit_properties=once)
        shutil.rmtree(self.staging(batch), ignore_errors=True)
        return [action.path for action in actions]

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.target) if DeltaTable.is_deltatable(str(self.target)) else None

    def _made(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable.create(self.target, self.schema, partition_by=PARTITIONS)


def schema() -> pa.Schema:
    columns = shape.schema([name for name in shape.SQL if name not in ("receives", "state")])
    return columns.append(pa.field("hour", pa.string()))
