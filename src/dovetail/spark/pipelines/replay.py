"""An archive back into a queue, in the order of sequences. It needs no Spark: one reader and one connection keep the order.

Exactly once: the messages are numbered, and the node remembers the last number of the producer, which is named after what is replayed and
where to. A replay that died goes on when it is run again; one that ended changes nothing when it is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.message import Attribute, encode_attributes
from dovetail.core.operation import Numbered, Push
from dovetail.doors.native.codec import requests
from dovetail.spark.options import options_of
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, source_of
from dovetail.spark.pipelines.archived import Wanted, archived, instant

SETTINGS = {
    **SOURCE,
    "queue": Setting(None, "the queue to push to; it must be there"),
    "archive": Setting(None, "the folder of an archive, Parquet or Delta"),
    "source": Setting(None, "the queue in the archive"),
    "since": Setting("", "messages that were pushed at this time or later, like 2026-05-01T12:00"),
    "until": Setting("", "messages that were pushed before this time"),
    "group": Setting("", "messages of this group"),
    "name": Setting("", "to replay the same once more, give it another name"),
}
PUSH_MESSAGES, PUSH_BYTES = 1_000, 200_000


def run(settings: Settings, say: Say) -> None:
    say(f"{replay(settings):,} messages were pushed")


def replay(settings: Settings) -> int:
    """Returns how many messages were pushed now."""
    options = options_of(source_of(settings))
    reach = options.reach()
    named = "\0".join(settings[name] for name in ("name", "source", "since", "until", "group", "queue", "namespace"))
    identity = blake2b(named.encode(), digest_size=16, person=b"dovetail-replay").digest()
    queue = reach.patiently(lambda: reach.open(options.namespace, options.queue))
    producing = reach.patiently(lambda: reach.line.ask(requests.Producer(identity)))
    number = 0
    for rows in archived(Path(settings["archive"]), settings["source"], wanted_of(settings)):
        for some in cut(rows):
            first, number = number + 1, number + some.num_rows
            if number <= producing.last:
                continue
            # The node knows the numbers up to `last`: those of a record that was pushed in part are repeats to it.
            push = pushed(queue, some, Numbered(producing.identity, producing.epoch, first))
            reach.line.ask(requests.Push(codec.encode_push(push)))
    return max(0, number - int(producing.last))


def wanted_of(settings: Settings) -> Wanted:
    since, until = (instant(settings[name]) if settings[name] else None for name in ("since", "until"))
    return Wanted(since, until, settings["group"])


def cut(rows: pa.Table) -> Iterator[pa.Table]:
    """In records of a good size. The same rows are always cut in the same way, so that their numbers stay."""
    sizes = pc.binary_length(rows["body"]).to_pylist()
    start = size = 0
    for index, one in enumerate(sizes):
        if index > start and (size + one > PUSH_BYTES or index - start == PUSH_MESSAGES):
            yield rows.slice(start, index - start)
            start, size = index, 0
        size += one
    if start < len(sizes):
        yield rows.slice(start)


def pushed(queue: int, rows: pa.Table, numbered: Numbered) -> Push:
    groups = [(text or "").encode() for text in rows["group"].to_pylist()]
    told = [_attributes(pairs) for pairs in rows["attributes"].to_pylist()]
    return Push(
        (queue,),
        Column.of(rows["body"].to_pylist()),
        numbered=numbered,
        groups=Column.of(groups) if any(groups) else None,
        attributes=Column.of(told) if any(told) else None,
    )


def _attributes(pairs: Any) -> bytes:
    return encode_attributes({name: Attribute(one["type"], one["value"]) for name, one in pairs or ()})


PIPELINE = Pipeline(SETTINGS, run)
