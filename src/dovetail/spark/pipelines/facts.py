"""The facts table (`option("table", "facts")`) as measures and usage need it: plain Arrow.

Facts come in the order in which they happened, and say what became of each message. A queue that was dropped and made again keeps its name
and begins with sequence 1 again: what is told of here is the queue as it is now.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.spark.pipelines import Settings

COLUMNS = (
    "number",
    "time",
    "kind",
    "outcome",
    "queue",
    "queue_id",
    "sequence",
    "count",
    "receives",
    "due",
    "bytes",
    "target",
    "target_sequence",
)
"""What is read of it."""
TRACE = pa.schema(
    [
        *(("queue", pa.string()), ("kind", pa.string()), ("time_ns", pa.int64()), ("payload", pa.int64()), ("due_ns", pa.int64())),
        *(("place", pa.int64()), ("queue_id", pa.int64()), ("from_facts", pa.bool_())),
    ]
)
KINDS = {
    "push": "sent",
    **dict.fromkeys(("delivery", "take", "reserve"), "delivered"),
    **dict.fromkeys(("complete", "settle"), "completed"),
    **dict.fromkeys(("cancel", "dead-letter", "redrive", "expire"), "discarded"),
    **dict.fromkeys(("purge", "drop"), "cleared"),
}
"""Kind of fact → kind of a trace; the others change nothing that is measured."""
MOVED = ("dead-letter", "redrive")
LAST = (1 << 63) - 1
GONE = ("take", "complete", "cancel", "dead-letter", "redrive", "expire", "settle")
"""What takes a message from its queue for good, beside purge and drop, which take many at once."""


def options_for(settings: Settings) -> Settings:
    """Options of a read of the facts, from settings of a pipeline."""
    said = {name: settings[name] for name in ("endpoint", "namespace", "key") if settings.get(name)}
    return {**said, "table": "facts", "tap": settings["tap"], "columns": ",".join(COLUMNS)}


def spread(facts: pa.Table) -> pa.Table:
    """A row for each message: what names neighbours names them one by one."""
    many = pc.and_(pc.is_in(facts["kind"], value_set=pa.array(["expire", "reserve", "settle", "unreserve"])), pc.greater(facts["count"], 1))
    if not pc.any(many).as_py():
        return facts
    rows: list[int] = []
    steps: list[int] = []
    for row, count in enumerate(pc.if_else(many, facts["count"], 1).to_pylist()):
        rows += [row] * count
        steps += range(count)
    made = facts.take(pa.array(rows, pa.int64()))
    at = made.schema.get_field_index("sequence")
    return made.set_column(at, "sequence", pc.add(made["sequence"].cast(pa.int64()), pa.array(steps, pa.int64())))


def arrivals(facts: pa.Table) -> pa.Table:
    """Messages that came from another queue, as pushes of theirs: that queue has no push of them."""
    moved = facts.filter(pc.and_(pc.is_in(facts["kind"], value_set=pa.array(MOVED)), pc.is_valid(facts["target"])))
    changed = {
        "kind": pa.chunked_array([pa.repeat(pa.scalar("push", pa.string()), moved.num_rows)]),
        "queue": moved["target"],
        "sequence": moved["target_sequence"],
        "queue_id": pa.chunked_array([pa.nulls(moved.num_rows, moved.schema.field("queue_id").type)]),
        "due": pa.chunked_array([pa.nulls(moved.num_rows, moved.schema.field("due").type)]),
    }
    columns = [changed.get(name, moved[name]).cast(moved.schema.field(name).type) for name in moved.schema.names]
    return pa.table(columns, schema=moved.schema)


def events(facts: pa.Table) -> pa.Table:
    """What happened, to one message in each row, in order; refusals and repeats are none of it."""
    done = facts.filter(pc.equal(facts["outcome"], "done"))
    together = pa.concat_tables([spread(done), arrivals(done)])
    names = pc.coalesce(together["queue"], pc.binary_join_element_wise("#", together["queue_id"].cast(pa.string()), ""))
    return together.set_column(together.schema.get_field_index("queue"), "queue", names)


def trace(facts: pa.Table) -> pa.Table:
    """The same in the columns of a trace."""
    found = events(facts)
    kinds = pa.array(list(KINDS))
    found = found.filter(pc.is_in(found["kind"], value_set=kinds))
    kind = pa.array(list(KINDS.values())).take(pc.index_in(found["kind"], value_set=kinds))
    nothing = pa.scalar(None, pa.int64())
    # A queue that is dropped takes all of its messages along.
    payload = pc.if_else(pc.equal(found["kind"], "drop"), LAST, found["sequence"].cast(pa.int64()))
    delayed = pc.and_(pc.equal(found["kind"], "push"), pc.greater(found["due"], found["time"]))
    columns = [
        *(found["queue"], kind, _ns(found["time"]), payload),
        *(pc.if_else(delayed, _ns(found["due"]), nothing), found["number"].cast(pa.int64()), found["queue_id"].cast(pa.int64())),
        pa.repeat(True, found.num_rows),
    ]
    return pa.table([_chunked(column, field.type) for column, field in zip(columns, TRACE, strict=True)], schema=TRACE)


def current(table: pa.Table) -> pa.Table:
    """Of one queue's trace in order: the queue as it is now, without an earlier one of its name."""
    table = table.sort_by([("place", "ascending"), ("payload", "ascending")])
    newest = pc.max(table["queue_id"]).as_py()
    if newest is None:
        return table
    first = pc.min(table.filter(pc.equal(table["queue_id"], newest))["place"]).as_py()
    return table.filter(pc.and_(pc.greater_equal(table["place"], first), pc.fill_null(pc.equal(table["queue_id"], newest), True)))


def _ns(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())


def _chunked(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return (column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])).cast(kind)
