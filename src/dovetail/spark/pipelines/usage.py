"""What accounts and queues use, hour by hour: what an operator and a bill need, and the figures that say when to add or remove nodes.

    target/usage-2026-05-01-12.parquet (or .csv)     one file for each hour that is over, made once and whole

It reads facts, so each figure is exact and is that of the node. A batch that is run again, and a run that begins anew, replace an hour's
file by the same. The hour that is under way is shown and not written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dovetail.errors import BadRequest
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, facts, hours, number_of, running
from dovetail.spark.pipelines.hours import ALL, HOUR_MS, Stand, stand
from dovetail.spark.pipelines.published import sync
from dovetail.spark.pipelines.states import States

SETTINGS = {
    **{name: setting for name, setting in SOURCE.items() if name != "queue"},
    "tap": Setting("usage", "the tap of the facts that are not counted yet; one for each usage"),
    "target": Setting(None, "the folder of the hours and of the pipeline's state"),
    "account": Setting("", "the account that the rows name; without it the namespace, or the access key"),
    "format": Setting("parquet", "of the hours: parquet or csv"),
    "capacity": Setting(
        "", "pushes and deliveries a second that your nodes carry together, as you have measured; then it is said how much is used"
    ),
    "show": Setting("20", "so many queues are shown, those that moved most"),
    "every": Setting("", "how often, like 1m; without it once over what is there now"),
    "rows": Setting("2000000", "facts of one batch, at most"),
}
BUSY, IDLE = 0.7, 0.2
"""Of the capacity, in the busiest minute of an hour: above the one more nodes are due, below the other fewer will do."""
_WRITE = {"parquet": pq.write_table, "csv": pyarrow.csv.write_csv}


def run(settings: Settings, say: Say) -> None:
    step = step_of(settings, say)
    running.run("usage", partial(start, settings=settings, step=step), options_for(settings), say)
    step.show()


def options_for(settings: Settings) -> Settings:
    return {**facts.options_for(settings), "maxRowsPerTrigger": str(number_of(settings, "rows"))}


def step_of(settings: Settings, say: Say) -> Step:
    if settings["format"] not in _WRITE:
        raise BadRequest(f"format: parquet or csv, not {settings['format']!r}")
    capacity = number_of(settings, "capacity") if settings["capacity"] else None
    account = settings["account"] or settings["namespace"] or settings["key"] or os.environ.get("DOVETAIL_ACCESS_KEY_ID", "")
    return Step(Path(settings["target"]).absolute(), account, settings["format"], capacity, number_of(settings, "show", 0), say)


def start(spark: Any, settings: Settings, step: Step) -> Any:
    """The query, under way."""
    return running.start(spark, options_for(settings), step, step.target / f"_checkpoint-{settings['tap']}", settings["every"])


class Step:
    """One batch of facts, which may come again under its number."""

    def __init__(self, target: Path, account: str, how: str, capacity: int | None, shown: int, say: Say) -> None:
        self.target = target
        self._account = account
        self._how = how
        self._capacity = capacity
        self._shown = shown
        self._say = say
        self._states = States(target / "_states")

    def __call__(self, rows: Any, batch: int) -> None:
        before = stand(self._states.before(batch))
        found: pa.Table = rows.select(*facts.COLUMNS).toArrow() if not isinstance(rows, pa.Table) else rows
        now, closed = hours.after(before, found, self._account)
        for hour in closed:
            self._write(hour)
            self.tell(hour, "")
        # Behind the hours: a batch that died in between writes the same hours again.
        self._states.write(batch, now.tables())

    def _write(self, hour: pa.Table) -> None:
        self.target.mkdir(parents=True, exist_ok=True)
        when = hour["hour"][0].as_py().strftime("%Y-%m-%d-%H")
        file = self.target / f"usage-{when}.{self._how}"
        new = file.with_suffix(".new")
        _WRITE[self._how](hour, new)
        sync(new)
        os.replace(new, file)
        sync(self.target)

    def show(self) -> None:
        """The hour that is under way."""
        now: Stand = stand(self._states.before(self._states.last() + 1))
        if now.hour is None:
            self._say("there are no facts yet")
            return
        at_ms = min((now.hour + 1) * HOUR_MS, int(datetime.now(UTC).timestamp() * 1000))
        self.tell(hours.told(now, self._account, at_ms), ", so far")

    def tell(self, hour: pa.Table, more: str) -> None:
        *rows, everything = hour.to_pylist()
        rows.sort(key=lambda row: (-row["pushed"] - row["delivered"], -row["depth"], row["queue"]))
        self._say(f"{everything['hour']:%Y-%m-%d %H}:00{f', account {self._account}' if self._account else ''}{more}")
        for line in table([*rows[: self._shown], everything]):
            self._say(line)
        if len(rows) > self._shown:
            self._say(f"  and {len(rows) - self._shown:,} more queues")
        self._say(f"  {verdict(everything, self._capacity)}")


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows as they are read on a terminal."""
    heads = ["queue", "in", "out", "again", "bytes in", "bytes out", "depth", "peak", "oldest", "busiest"]
    cells = [
        [
            "all" if row["queue"] == ALL else row["queue"],
            *(f"{row[name]:,}" for name in ("pushed", "delivered", "again")),
            *(size(row[name]) for name in ("bytes_in", "bytes_out")),
            *(f"{row[name]:,}" for name in ("depth", "depth_peak")),
            f"{row['oldest_s']:,.0f} s",
            f"{row['busiest_per_s']:,.1f}/s",
        ]
        for row in rows
    ]
    widths = [max(len(line[at]) for line in [heads, *cells]) for at in range(len(heads))]
    return [
        "  "
        + "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in [heads, *cells]
    ]


def size(count: int) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:,.1f} TB"


def verdict(everything: dict[str, Any], capacity: int | None) -> str:
    """When to add or remove nodes; and when it is the receivers that are too few, which more nodes do not help."""
    grown = everything["pushed"] - everything["completed"] - everything["discarded"] - everything["moved"]
    behind = ""
    if everything["depth"] > everything["pushed"] / 2 and grown > 0:
        behind = f"; {grown:,} more came than left, and the oldest waits {everything['oldest_s']:,.0f} s: receivers are too few or too slow"
    if capacity is None:
        return f"busiest minute {everything['busiest_per_s']:,.1f} messages/s{behind}"
    used = everything["busiest_per_s"] / capacity
    what = "add nodes" if used > BUSY else "fewer nodes will do" if used < IDLE else "nodes are enough"
    return f"busiest minute {everything['busiest_per_s']:,.1f} messages/s, {used:.0%} of the capacity: {what}{behind}"


PIPELINE = Pipeline(SETTINGS, run)
