"""Dead letters: why they are there, which they are, and back with those that are chosen. It needs no Spark.

    look       what waits in the queue is looked at and left where it is; counted by error, and by attributes that are named
    plan       with `to` (or where each failed) and without `redrive`: what would go where
    redrive    take everything up to the last that was chosen, under a lease; move what was chosen; give the rest back as if never taken

Exactly once: completing a message here and pushing it there is one operation. Whoever dies in between has moved it or has not; what was
taken comes back when its lease ends. A message that somebody else has in hand, or has completed meanwhile, is left to them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import BadRequest
from dovetail.spark import fetch
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options, options_of
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, number_of, source_of
from dovetail.spark.pipelines.archived import instant
from dovetail.spark.pipelines.deadletter import ERROR, ERROR_QUEUE
from dovetail.spark.pipelines.redriving import Redrive
from dovetail.spark.survey import Survey

SETTINGS = {
    **SOURCE,
    "queue": Setting(None, "the queue of dead letters"),
    "by": Setting(ERROR, "the attributes to group by, with commas"),
    "error": Setting("", "only those whose error is like this; * stands for anything"),
    "where": Setting("", "only those with these attributes: name=value, with commas; * stands for anything"),
    "sequences": Setting("", "only these: 5,7,10-20"),
    "since": Setting("", "only those that came at this time or later, like 2026-05-01T12:00"),
    "until": Setting("", "only those that came before this time"),
    "show": Setting("0", "show so many of the chosen ones"),
    "to": Setting("", "the queue to redrive to; without it each goes to the one that it failed in (attribute error-queue)"),
    "through": Setting("", "nothing behind this sequence; a plan names it, so that what comes later is not redriven unseen"),
    "redrive": Setting("", "do it; without it nothing is moved", truth=True),
}
COLUMNS = ("queue", "sequence", "time", "id", "group", "attributes", "body", "receives", "state")
GROUPS_SHOWN = 50
BODY_SHOWN = 60


class Chosen(NamedTuple):
    """Which messages are meant: all where nothing is said."""

    error: str = ""
    where: Mapping[str, str] = {}
    sequences: Sequence[range] = ()
    since: object = None
    until: object = None
    through: int = 0

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        kept = pa.repeat(pa.scalar(True), rows.num_rows)
        for name, pattern in {**self.where, **({ERROR: self.error} if self.error else {})}.items():
            texts = attribute(rows, name).dictionary_encode()
            fits = pa.array([fnmatchcase(text, pattern) for text in texts.dictionary.to_pylist()], pa.bool_())
            kept = pc.and_(kept, pc.fill_null(fits.take(texts.indices), False))
        if self.sequences:
            numbers = rows["sequence"]
            within = [pc.and_(pc.greater_equal(numbers, one.start), pc.less(numbers, one.stop)) for one in self.sequences]
            kept = pc.and_(kept, reduce(pc.or_, within))
        if self.since is not None:
            kept = pc.and_(kept, pc.greater_equal(rows["time"], pa.scalar(self.since, rows["time"].type)))
        if self.until is not None:
            kept = pc.and_(kept, pc.less(rows["time"], pa.scalar(self.until, rows["time"].type)))
        return pc.and_(kept, pc.less_equal(rows["sequence"], self.through)) if self.through else kept


def chosen_of(settings: Settings) -> Chosen:
    where = dict(part.partition("=")[::2] for part in settings["where"].split(",") if part.strip())
    if any(not name or not pattern for name, pattern in where.items()):
        raise BadRequest(f"where: name=value, several with commas, not {settings['where']!r}")
    return Chosen(
        settings["error"],
        where,
        ranges_of(settings["sequences"]),
        instant(settings["since"]) if settings["since"] else None,
        instant(settings["until"]) if settings["until"] else None,
        number_of(settings, "through") if settings["through"] else 0,
    )


def ranges_of(text: str) -> Sequence[range]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        ends = re.fullmatch(r"(\d{1,15})(?:-(\d{1,15}))?", part)
        if ends is None:
            raise BadRequest(f"sequences: like 5,7,10-20, not {text!r}")
        found.append(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return found


def attribute(rows: pa.RecordBatch, name: str) -> pa.Array:
    """One attribute of each row as text; null where there is none."""
    found = pc.map_lookup(rows["attributes"], pa.scalar(name), "first")
    values = pc.struct_field(found, "value").dictionary_encode()
    texts = pa.array([value.decode(errors="replace") for value in values.dictionary.to_pylist()], pa.string())
    return texts.take(values.indices)


def kind_of(error: str) -> str:
    """What errors of one kind have in common: without the numbers and the quoted texts that differ from one message to the next."""
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", error))


def grouped(rows: pa.RecordBatch, by: Sequence[str]) -> pa.Table:
    """(the attributes …, messages, first time, last time, an example)"""
    keys = {name: attribute(rows, name) for name in by}
    if ERROR in keys:
        texts = keys[ERROR].dictionary_encode()
        keys[ERROR] = pa.array([kind_of(text) for text in texts.dictionary.to_pylist()], pa.string()).take(texts.indices)
    table = pa.table(
        {**keys, "messages": pa.repeat(1, rows.num_rows), "first": rows["time"], "last": rows["time"], "example": rows["sequence"]}
    )
    return together([table], by)


def together(tables: Sequence[pa.Table], by: Sequence[str]) -> pa.Table:
    """Groups of several looks as those of one; the largest first."""
    found = (
        pa.concat_tables(tables).group_by(list(by)).aggregate([("messages", "sum"), ("first", "min"), ("last", "max"), ("example", "min")])
    )
    renamed = found.select([*by, "messages_sum", "first_min", "last_max", "example_min"]).rename_columns(
        [*by, "messages", "first", "last", "example"]
    )
    return renamed.sort_by([("messages", "descending"), ("example", "ascending")])


def run(settings: Settings, say: Say) -> None:
    options = options_of({**source_of(settings), "columns": ",".join(COLUMNS)})
    if len(options.names) != 1 or "*" in options.queue:
        raise BadRequest("queue: one queue of dead letters")
    by = [name.strip() for name in settings["by"].split(",") if name.strip()]
    if not by:
        raise BadRequest(f"by: at least one attribute, like {ERROR}")
    looked = Looked(options, chosen_of(settings), by, number_of(settings, "show", 0), settings["to"])
    looked.tell(say)
    if not looked.targets:
        return
    if settings["redrive"] != "true":
        for target, count in looked.targets.most_common():
            say(f"would go to {target}: {count:,}" if target else f"go nowhere, they do not say where they failed (--to): {count:,}")
        say(f"nothing was moved; --through {max(looked.sequences)} --redrive moves these and none that comes later")
        return
    if "" in looked.targets:
        raise BadRequest(f"{looked.targets['']:,} of the chosen messages do not say which queue they failed in: say where to (to)")
    moved = Redrive(options, looked.sequences, say).run()
    say(
        f"{moved:,} of {len(looked.sequences):,} were moved"
        + ("" if moved == len(looked.sequences) else "; the others are with somebody else")
    )


class Looked:
    """What waits, and what was chosen of it."""

    def __init__(self, options: Options, chosen: Chosen, by: Sequence[str], show: int, to: str) -> None:
        self.by = by
        self.sequences: dict[int, str] = {}
        """Of each chosen message: where it goes."""
        self.targets: Counter[str] = Counter()
        self.shown: list[str] = []
        self.groups: pa.Table | None = None
        for batch in looks(options):
            rows = batch.filter(chosen.mask(batch))
            if not rows.num_rows:
                continue
            found = grouped(rows, by)
            self.groups = found if self.groups is None else together([self.groups, found], by)
            to_each = [to] * rows.num_rows if to else attribute(rows, ERROR_QUEUE).fill_null("").to_pylist()
            self.sequences.update(zip(rows["sequence"].to_pylist(), to_each, strict=True))
            self.targets.update(to_each)
            self.shown += [shown(row) for row in rows.slice(0, max(0, show - len(self.shown))).to_pylist()]

    def tell(self, say: Say) -> None:
        if self.groups is None:
            say("there are none")
            return
        for row in self.groups.slice(0, GROUPS_SHOWN).to_pylist():
            why = ", ".join(f"{name} {row[name]}" if name != ERROR else str(row[name]) for name in self.by)
            say(f"{row['messages']:>9,}  {row['first']:%Y-%m-%d %H:%M:%S} … {row['last']:%Y-%m-%d %H:%M:%S}  {why}  (as {row['example']})")
        if self.groups.num_rows > GROUPS_SHOWN:
            say(f"and {self.groups.num_rows - GROUPS_SHOWN:,} more kinds")
        for line in self.shown:
            say(line)


def looks(options: Options) -> Iterator[pa.RecordBatch]:
    survey = Survey(options)
    stand = survey.stand(options.names[0])
    yield from fetch.waiting(survey.reach, options, Range(options.names[0], stand.queue, stand.next, stand.end))
    survey.reach.drop()


def shown(row: Mapping[str, object]) -> str:
    body, told = row["body"], row["attributes"]
    assert isinstance(body, bytes)
    attributes = ", ".join(f"{name}={one['value'].decode(errors='replace')}" for name, one in told) if isinstance(told, list) else ""
    text = body[:BODY_SHOWN].decode(errors="replace") + ("…" if len(body) > BODY_SHOWN else "")
    return f"{row['sequence']}  {row['time']:%Y-%m-%d %H:%M:%S}  {row['state']}  {text!r}  {attributes}"


PIPELINE = Pipeline(SETTINGS, run)
