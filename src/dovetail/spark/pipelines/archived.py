"""An archive as it is read: the rows of one queue in the order of their sequences, whoever has written the files. No Spark here.

Files hold stretches of sequences. Those of an archive's batches do not overlap; what a table's own compaction has put together may. Files
that overlap are read together and sorted, the others one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dovetail.errors import BadRequest
from dovetail.spark import shape

COLUMNS = ("sequence", "time", "group", "attributes", "body")
_ESCAPED = frozenset("\"#%'*/:=?\\{}[]^\x7f") | {chr(code) for code in range(32)}
"""What Spark writes as %41 in the name of a partition's folder."""


class Wanted(NamedTuple):
    """Which rows of an archive: all where nothing is said."""

    since: datetime | None = None
    until: datetime | None = None
    group: str = ""

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        kept = pa.chunked_array([pa.repeat(True, rows.num_rows)])
        if self.since is not None:
            kept = pc.and_(kept, pc.greater_equal(rows["time"], _instant(self.since)))
        if self.until is not None:
            kept = pc.and_(kept, pc.less(rows["time"], _instant(self.until)))
        if self.group:
            kept = pc.and_kleene(kept, pc.equal(rows["group"], self.group))
        return pc.fill_null(kept, False)

    def hour(self, hour: str) -> bool:
        """Whether there may be some in this hour."""
        return (self.since is None or hour >= hour_of(self.since)) and (self.until is None or hour <= hour_of(self.until))


class Stretch(NamedTuple):
    first: int
    last: int
    path: Path


def instant(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text!r} is no time; one is like 2026-05-01T12:00 or 2026-05-01T12:00:00+02:00") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def hour_of(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d-%H")


def _instant(when: datetime) -> pa.Scalar:
    return pa.scalar(when, shape.ARROW["time"])


def folder_of(queue: str, hour: str) -> Path:
    """Where the rows of a queue and an hour lie, below the archive."""
    return Path(f"queue={''.join(f'%{ord(letter):02X}' if letter in _ESCAPED else letter for letter in queue)}", f"hour={hour}")


def partition_of(folder: Path) -> tuple[str, str]:
    """(queue, hour)"""
    told = dict(part.split("=", 1) for part in folder.parts[-2:])
    return unquote(told["queue"]), told["hour"]


def files(folder: Path) -> Sequence[Path]:
    """Every file that is read."""
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        return sorted(map(Path, DeltaTable(folder).file_uris()))
    return sorted(folder.glob("queue=*/hour=*/*.parquet"))


def stretch_of(path: Path) -> Stretch | None:
    """The sequences from the lowest to the highest of a file, by its footer alone where that has them; None where it has no row."""
    file = pq.ParquetFile(path)
    if not file.metadata.num_rows:
        return None
    # Columns of a footer are counted without those that hold others.
    first = file.metadata.row_group(0)
    at = next(index for index in range(first.num_columns) if first.column(index).path_in_schema == "sequence")
    ends = [file.metadata.row_group(group).column(at).statistics for group in range(file.metadata.num_row_groups)]
    if all(one is not None and one.has_min_max for one in ends):
        return Stretch(min(one.min for one in ends), max(one.max for one in ends), path)
    told = pc.min_max(file.read(["sequence"])["sequence"]).as_py()
    return Stretch(told["min"], told["max"], path)


def clusters(stretches: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """Those that overlap together, in the order of sequences."""
    together: list[Stretch] = []
    for one in sorted(stretches):
        if together and one.first > max(other.last for other in together):
            yield together
            together = []
        together.append(one)
    if together:
        yield together


def rows_of(path: Path, columns: Sequence[str]) -> pa.Table:
    """Of one file, in our types: times that Spark wrote its older way have nanoseconds and no zone."""
    table = pq.ParquetFile(path).read(list(columns))
    if "time" in columns:
        time = table["time"].cast(pa.timestamp("us"), safe=False) if table.schema.field("time").type.tz is None else table["time"]
        table = table.set_column(list(columns).index("time"), "time", time.cast(shape.ARROW["time"]))
    return table


def archived(folder: Path, queue: str, wanted: Wanted = Wanted(), columns: Sequence[str] = COLUMNS) -> Iterator[pa.Table]:  # noqa: B008
    """The rows of one queue in the order of their sequences. `columns` hold sequence and what `wanted` looks at."""
    found: list[Stretch] = []
    for path in files(folder):
        name, hour = partition_of(path.parent)
        if name == queue and wanted.hour(hour):
            stretch = stretch_of(path)
            if stretch is not None:
                found.append(stretch)
    for together in clusters(found):
        rows = pa.concat_tables([rows_of(one.path, columns) for one in together]).sort_by("sequence")
        rows = rows.filter(wanted.mask(rows))
        if rows.num_rows:
            yield rows
