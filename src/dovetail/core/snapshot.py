"""The whole state as bytes and back: what a snapshot holds. Columns are written as they lie in memory, so that ten million waiting messages
are saved and loaded in a fraction of a second.

    magic 8 · version u32 · 0 u32
    section:  tag u8 · 0 × 3 · crc32 u32 (seeded with the tag) · length u64 · data
    tags      STATE (JSON) · FACTS for each page of the chronicle · STAGED for each staged record · then for each lane: LANE (JSON),
              GROUPS or TENANTS, CHUNK × n, TIMES × n, DEDUP × n · END

Reading checks every section before it is used and knows all of the bytes: a snapshot cut anywhere has no END and is refused.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict
from struct import Struct
from struct import error as struct_error
from typing import Any
from zlib import crc32

from dovetail.core.chronicle import Chronicle, FactStretch, Page
from dovetail.core.chunk import SHIFT, Chunk
from dovetail.core.column import Column
from dovetail.core.digest import Digests
from dovetail.core.fair import Tenants
from dovetail.core.lane import Lane
from dovetail.core.message import salt_of
from dovetail.core.moves import Arrivals, Departures, Leaving
from dovetail.core.operation import Attributes, Push, Why
from dovetail.core.producers import Producer
from dovetail.core.reservations import Batch, Reservation
from dovetail.core.serving import Waiting
from dovetail.core.stages import Staged, Stages, bodies_elsewhere
from dovetail.core.state import State
from dovetail.core.taps import Runs, Stretch, Tap
from dovetail.core.timeindex import TimeIndex
from dovetail.core.usage import Bucket
from dovetail.core.versions import APPLY_VERSION
from dovetail.core.waiting import Attempt, Waiter, Waiters
from dovetail.core.writers import Writer
from dovetail.errors import CodecError, FormatUnknown

MAGIC = b"DVTLSNAP"
VERSION = 1
_FILE = Struct("<8sII")
_SECTION = Struct("<B3xIQ")
STATE, LANE, CHUNK, TIMES, DEDUP, GROUPS, END, TENANTS, STAGED, FACTS = range(1, 11)

_CHUNK = Struct("<QQIIII11I")
_TIMES = Struct("<q")
_DEDUP = Struct("<ii")


def dump(state: State, written: Callable[[Lane], Stretch | None] = lambda lane: None, facts: FactStretch | None = None) -> Iterator[bytes]:
    """The bytes of `state`, piece by piece. `written` says where the recent notes of a lane's taps were put, if they were, and `facts`
    where the chronicle's pages."""
    yield _FILE.pack(MAGIC, VERSION, 0)
    yield _section(STATE, json.dumps(_state_facts(state, facts)).encode())
    if facts is None:
        for page in state.chronicle.dump():
            yield _section(FACTS, page)
    for name, stage in state.stages.by_id.items():
        for record in stage.records:
            yield _section(STAGED, _staged_bytes(name, stage.began, record))
    for lane in state.lanes.values():
        yield _section(LANE, json.dumps(_lane_facts(lane, written(lane))).encode())
        if lane.groups is not None:
            groups = lane.groups
            names = json.dumps([name.hex() for name in groups.names]).encode()
            yield _section(GROUPS, Struct("<I").pack(len(names)) + names + b"".join(map(bytes, (groups.heads, groups.tails, groups.busy))))
        if lane.tenants is not None:
            yield _section(TENANTS, _tenants_bytes(lane.tenants))
        for chunk in lane.chunks.values():
            yield _section(CHUNK, _chunk_bytes(chunk))
        for start, entries in lane.index.buckets():
            yield _section(TIMES, _TIMES.pack(start) + entries.tobytes())
        for generation, part, data in lane.dedup.dump():
            yield _section(DEDUP, _DEDUP.pack(generation, part) + data)
    yield _section(END, b"")


def load(data: memoryview) -> State:
    """The state whose bytes these are; CodecError where they are damaged or cut, FormatUnknown where they are too new."""
    try:
        return _load(data)
    except (struct_error, ValueError, KeyError, IndexError, TypeError, OverflowError, AttributeError) as error:
        raise CodecError(f"snapshot: {error!r}") from None


def _load(data: memoryview) -> State:
    magic, version, _ = _FILE.unpack_from(data)
    if magic != MAGIC:
        raise CodecError("this is not a snapshot")
    if version != VERSION:
        raise FormatUnknown(f"a snapshot of version {version}; this node knows {VERSION}")
    state: State | None = None
    lane: Lane | None = None
    times: list[tuple[int, array[int]]] = []
    for tag, body in sections(data):
        if tag == STATE:
            state = _state_from(json.loads(bytes(body)))
        elif state is None:
            raise CodecError("a snapshot that does not begin with its state")
        elif tag == FACTS:
            state.chronicle.pages.append(Page.load(body))
        elif tag == STAGED:
            _staged_into(state.stages, body)
        elif tag in (LANE, END):
            if lane is not None:
                _finish(lane, times)
            if tag == END:
                return state
            lane, times = _lane_from(json.loads(bytes(body))), []
            state.lanes[lane.queue] = lane
            state.leaving |= {(lane.queue, target): None for target, known in lane.departures.items() if known.under_way}
        elif lane is None:
            raise CodecError("a snapshot with columns before its first lane")
        elif tag == CHUNK:
            chunk = _chunk_from(body)
            lane.chunks[chunk.base >> SHIFT] = lane.tail = chunk
        elif tag == TIMES:
            times.append((_TIMES.unpack_from(body)[0], _array("Q", body[_TIMES.size :])))
        elif tag == DEDUP:
            generation, part = _DEDUP.unpack_from(body)
            lane.dedup.load(generation, part, bytes(body[_DEDUP.size :]))
        elif tag == GROUPS:
            _groups_into(lane, body)
        elif tag == TENANTS:
            lane.tenants = _tenants_from(body)
        else:
            raise CodecError(f"a section of unknown kind {tag}")
    raise CodecError("the snapshot is cut short")


def sections(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = _FILE.size
    while at < len(data):
        tag, checksum, length = _SECTION.unpack_from(data, at)
        at += _SECTION.size
        body = data[at : at + length]
        if len(body) != length or crc32(body, tag) != checksum:
            raise CodecError(f"a section of the snapshot is damaged at byte {at}")
        yield tag, body
        at += length


def _section(tag: int, data: bytes) -> bytes:
    return _SECTION.pack(tag, crc32(data, tag), len(data)) + data


def _array(code: str, data: memoryview | bytes) -> array[int]:
    made = array(code)
    made.frombytes(data)
    return made


# Chunks


def _columns(chunk: Chunk) -> list[array[int] | None]:
    return [
        chunk.starts,
        chunk.addresses,
        chunk.items,
        chunk.mark_at,
        chunk.mark_ms,
        chunk.visible,
        chunk.born,
        chunk.deliveries,
        chunk.receives,
        chunk.first_received,
    ]


_CODES = "HQIHIIIQHI"


def _chunk_bytes(chunk: Chunk) -> bytes:
    columns = _columns(chunk)
    lengths = [len(chunk.states), *(0 if column is None else len(column) for column in columns)]
    widths = sum(1 << index for index, column in enumerate(columns) if column is not None and column.typecode == "Q")
    parts: list[Any] = [_CHUNK.pack(chunk.base, chunk.time, chunk.live, chunk.tombs, chunk.low, widths, *lengths), chunk.states]
    parts += [column for column in columns if column is not None]
    for extra in ((chunk.groups, chunk.nexts), chunk.origins or ()):
        parts.append(Struct("<I").pack(len(extra[0]) if extra and extra[0] is not None else 0))
        parts += [column for column in extra if column is not None]
    return b"".join(parts)


def _chunk_from(body: memoryview) -> Chunk:
    base, time, live, tombs, low, widths, size, *lengths = _CHUNK.unpack_from(body)
    chunk = Chunk(base, 0, time)
    at = _CHUNK.size
    chunk.states = bytearray(body[at : at + size])
    at += size
    made: list[array[int] | None] = []
    for index, length in enumerate(lengths):
        column = array("Q" if widths >> index & 1 else _CODES[index])
        end = at + length * column.itemsize
        column.frombytes(body[at:end])
        made.append(column if length else None)
        at = end
    chunk.starts, chunk.addresses = made[0] or array("H"), made[1] or array("Q")
    chunk.items = made[2]
    chunk.mark_at, chunk.mark_ms = made[3] or array("H"), made[4] or array("I")
    chunk.visible, chunk.born, chunk.deliveries, chunk.receives, chunk.first_received = made[5:]
    for width, code, name in ((2, "I", "groups"), (4, "Q", "origins")):
        (length,) = Struct("<I").unpack_from(body, at)
        at += 4
        if length:
            size = length * array(code).itemsize
            extra = [_array(code, body[at + size * i : at + size * (i + 1)]) for i in range(width)]
            at += size * width
            if name == "groups":
                chunk.groups, chunk.nexts = extra
            else:
                chunk.origins = extra[0], extra[1], extra[2], extra[3]
    chunk.live, chunk.tombs, chunk.low = live, tombs, low
    chunk.ready = chunk.states.count(1)
    return chunk


# Lanes


def _lane_facts(lane: Lane, stretch: Stretch | None) -> dict[str, Any]:
    recent = Runs() if stretch is not None else lane.taps.recent
    return {
        "queue": lane.queue,
        "attributes": {**asdict(lane.attributes), "extra": dict(lane.attributes.extra)},
        "counters": [lane.next, lane.delivery, lane.live, lane.leased, lane.delayed, lane.buried, lane.stranded],
        "free_groups": lane.groups.free if lane.groups is not None else [],
        "taps": {name: [tap.next, tap.age_ms, tap.bytes, tap.lost_first, tap.lost_count] for name, tap in lane.taps.by_name.items()},
        "stretches": [*lane.taps.stretches, *([stretch] if stretch is not None else [])],
        "recent": [column.tolist() for column in recent.columns()],
        "waiters": [[w.writer.hex(), w.waiter, w.most, w.lease_ms, w.delete, w.until, w.attempt.hex(), w.once] for w in lane.waiters],
        "attempts": [[key.hex(), made.time, made.sequences, made.deliveries] for key, made in lane.attempts.kept.items()],
        "epochs": lane.epochs,
        "reservations": {name: _reservation_facts(known) for name, known in lane.reservations.items()},
        "departures": [[target, known.next, known.gone, list(known.under_way.items())] for target, known in lane.departures.items()],
    }


def _reservation_facts(known: Reservation) -> list[Any]:
    batches = [[number, batch.firsts.tolist(), batch.counts.tolist()] for number, batch in known.batches.items()]
    return [known.epoch, known.last, known.settled, known.released, batches]


def _reservation_from(facts: list[Any]) -> Reservation:
    known = Reservation()
    known.epoch, known.last, known.settled, known.released, batches = facts
    for number, firsts, counts in batches:
        batch = known.batches[number] = Batch()
        batch.firsts, batch.counts = array("Q", firsts), array("I", counts)
    return known


def _lane_from(facts: dict[str, Any]) -> Lane:
    lane = Lane(facts["queue"], Attributes(**facts["attributes"]))
    lane.next, lane.delivery, lane.live, lane.leased, lane.delayed, lane.buried, lane.stranded = facts["counters"]
    if lane.groups is not None:
        lane.groups.free = facts["free_groups"]
    for name, (following, age_ms, size, lost_first, lost_count) in facts["taps"].items():
        tap = lane.taps.by_name[name] = Tap(following, age_ms, size)
        tap.lost_first, tap.lost_count = lost_first, lost_count
    lane.taps.stretches = [Stretch(*stretch) for stretch in facts["stretches"]]
    for column, values in zip(lane.taps.recent.columns(), facts["recent"], strict=True):
        column.extend(values)
    lane.waiters = Waiters(
        # Snapshots from before a waiter could take once do not say so.
        Waiter(bytes.fromhex(writer), waiter, most, lease, delete, until, bytes.fromhex(attempt), *once)
        for writer, waiter, most, lease, delete, until, attempt, *once in facts["waiters"]
    )
    for key, time, sequences, deliveries in facts["attempts"]:
        lane.attempts.put(bytes.fromhex(key), Attempt(time, tuple(sequences), tuple(deliveries)))
    # Snapshots from before there were reservations have none.
    lane.epochs = facts.get("epochs", 0)
    lane.reservations = {name: _reservation_from(known) for name, known in facts.get("reservations", {}).items()}
    for target, following, gone, under_way in facts.get("departures", []):
        known = lane.departures[target] = Departures()
        known.next, known.gone = following, gone
        known.under_way = {number: Leaving(*one) for number, one in under_way}
    lane.reserved = sum(map(len, lane.reservations.values())) + sum(len(known.under_way) for known in lane.departures.values())
    return lane


def _groups_into(lane: Lane, body: memoryview) -> None:
    groups = lane.groups
    if groups is None:
        raise CodecError("groups in a lane without groups")
    (size,) = Struct("<I").unpack_from(body)
    groups.names = [bytes.fromhex(name) for name in json.loads(bytes(body[4 : 4 + size]))]
    groups.numbers = {name: number for number, name in enumerate(groups.names) if name}
    count, at = len(groups.names), 4 + size
    groups.heads = _array("Q", body[at : at + 8 * count])
    groups.tails = _array("Q", body[at + 8 * count : at + 16 * count])
    groups.busy = _array("I", body[at + 16 * count : at + 20 * count])


_TENANT_COLUMNS = ("live", "pushed", "fronts", "heads", "tails")
_USAGE_COLUMNS = ("in_flight", "since", "used", "handed")


def _tenants_bytes(tenants: Tenants) -> bytes:
    """JSON, behind its length; the columns by tenant; then, as the JSON counts them, what returned and the sums of the window."""
    usage = tenants.usage
    buckets = sorted(usage.buckets.items())
    facts = json.dumps(
        {
            "now": tenants.now,
            "bucket": usage.bucket,
            "spells_at": tenants.spells_at,
            "names": [name.hex() for name in tenants.names],
            "free": tenants.free,
            "noisy": list(tenants.noisy),
            "returned": [[tenant, len(heap)] for tenant, heap in tenants.returned.items()],
            "buckets": [[number, len(bucket.used), len(bucket.handed)] for number, bucket in buckets],
        }
    ).encode()
    columns = [getattr(tenants, name) for name in _TENANT_COLUMNS] + [getattr(usage, name) for name in _USAGE_COLUMNS]
    columns += [array("Q", heap) for heap in tenants.returned.values()]
    for _, bucket in buckets:
        for sums in (bucket.used, bucket.handed):
            columns += [array("Q", sums), array("Q", sums.values())]
    return b"".join([Struct("<I").pack(len(facts)), facts, *map(bytes, columns)])


def _tenants_from(body: memoryview) -> Tenants:
    (size,) = Struct("<I").unpack_from(body)
    facts, rest = json.loads(bytes(body[4 : 4 + size])), body[4 + size :]

    def column(code: str, count: int) -> array[int]:
        nonlocal rest
        made = array(code)
        if len(rest) < count * made.itemsize:
            raise CodecError("columns of tenants that are cut short")
        made.frombytes(rest[: count * made.itemsize])
        rest = rest[count * made.itemsize :]
        return made

    tenants = Tenants(facts["now"], 0)
    usage = tenants.usage
    usage.bucket, tenants.spells_at = facts["bucket"], facts["spells_at"]
    tenants.names, tenants.free = [bytes.fromhex(name) for name in facts["names"]], facts["free"]
    tenants.numbers = {name: number for number, name in enumerate(tenants.names) if name}
    tenants.noisy = dict.fromkeys(facts["noisy"])
    for owner, names in ((tenants, _TENANT_COLUMNS), (usage, _USAGE_COLUMNS)):
        for name in names:
            setattr(owner, name, column(getattr(owner, name).typecode, len(tenants.names)))
    tenants.returned = {tenant: column("Q", count).tolist() for tenant, count in facts["returned"]}
    for number, used, handed in facts["buckets"]:
        bucket = usage.buckets[number] = Bucket()
        bucket.used = dict(zip(column("Q", used), column("Q", used), strict=True))
        bucket.handed = dict(zip(column("Q", handed), column("Q", handed), strict=True))
    tenants.line_up()
    return tenants


# Stages


def _staged_bytes(name: bytes, began: int, record: Staged) -> bytes:
    """JSON, behind its length; then the columns that it names: delays i64, hashes, the offsets and bytes of the groups' names."""
    push, groups = record.push, record.push.groups
    facts = {
        "stage": name.hex(),
        "began": began,
        "queues": push.queues,
        "count": len(push.bodies),
        "address": record.address,
        "bytes": record.bytes,
        "delays": None if push.delays is None else len(push.delays),
        "dedups": push.dedups is not None,
        "groups": None if groups is None else len(groups.blob),
    }
    head = json.dumps(facts).encode()
    parts: list[Any] = [Struct("<I").pack(len(head)), head]
    if push.delays is not None:
        parts.append(array("q", push.delays))
    if push.dedups is not None:
        parts.append(push.dedups)
    if groups is not None:
        parts += (array("I", groups.offsets), groups.blob)
    return b"".join(parts)


def _staged_into(stages: Stages, body: memoryview) -> None:
    (size,) = Struct("<I").unpack_from(body)
    facts, rest = json.loads(bytes(body[4 : 4 + size])), body[4 + size :]

    def cut(length: int) -> memoryview:
        nonlocal rest
        if length > len(rest):
            raise CodecError("a staged record that is cut short")
        part, rest = rest[:length], rest[length:]
        return part

    count = facts["count"]
    delays = _array("q", cut(8 * facts["delays"])) if facts["delays"] is not None else None
    dedups = bytes(cut(16 * count)) if facts["dedups"] else None
    groups = Column(_array("I", cut(4 * count + 4)), bytes(cut(facts["groups"]))) if facts["groups"] is not None else None
    push = Push(tuple(facts["queues"]), bodies_elsewhere(count), delays, groups, dedups)
    stages.put(bytes.fromhex(facts["stage"]), facts["began"], Staged(push, facts["address"], facts["bytes"]))


def _finish(lane: Lane, times: list[tuple[int, array[int]]]) -> None:
    lane.index = TimeIndex.of(times)
    lane.ready_chunks = [number for number, chunk in lane.chunks.items() if chunk.ready]
    for number in lane.ready_chunks:
        lane.chunks[number].listed = True


# The state


def _state_facts(state: State, written: FactStretch | None) -> dict[str, Any]:
    chronicle = state.chronicle.facts()
    if written is not None:
        chronicle["stretches"] = [*chronicle["stretches"], written]
    return {
        "version": state.version,
        "key": state.key.hex(),
        "time": state.time,
        "ahead_s": state.ahead_s,
        "position": state.position,
        "trimmed": state.trimmed,
        "catalog": [state.catalog.next, [[queue, *name] for queue, name in state.catalog.by_id.items()]],
        "dropped": list(state.dropped),
        "waiting": list(state.waiting.places),
        "producers": [
            [key.hex(), p.epoch, p.last, [int(r) if isinstance(r, Why) else r for r in p.results]]
            for key, p in state.producers.by_id.items()
        ],
        "owners": [[key.hex(), batch] for key, batch in state.stages.owners.items()],
        "digest": state.digests.value,
        "log": [state.logs, state.place],
        "arrivals": [[*pair, known.low, list(known.judged.items())] for pair, known in state.arrivals.items()],
        "chronicle": chronicle,
        "closed": [key.hex() for key in state.writers.closed],
        "writers": [[key.hex(), w.version, w.last, w.applied, w.silent_ms, w.seen, w.handed] for key, w in state.writers.by_id.items()],
    }


def _state_from(facts: dict[str, Any]) -> State:
    state = State()
    if facts["version"] > APPLY_VERSION:
        raise FormatUnknown(f"a snapshot made under apply version {facts['version']}; this node knows {APPLY_VERSION}")
    state.version, state.key = facts["version"], bytes.fromhex(facts["key"])
    state.salt = salt_of(state.key)
    state.time, state.position, state.trimmed = facts["time"], facts["position"], facts["trimmed"]
    state.ahead_s = facts["ahead_s"]
    state.catalog.next, names = facts["catalog"]
    for queue, namespace, name in names:
        state.catalog.by_id[queue] = (namespace, name)
        state.catalog.by_name[namespace, name] = queue
    state.dropped = dict.fromkeys(facts["dropped"])
    state.waiting = Waiting(facts["waiting"])
    for key, epoch, last, results in facts["producers"]:
        producer = state.producers.by_id[bytes.fromhex(key)] = Producer()
        producer.epoch, producer.last = epoch, last
        producer.results = [Why(r) if isinstance(r, int) else tuple((queue, sequence) for queue, sequence in r) for r in results]
    state.stages.owners = {bytes.fromhex(key): batch for key, batch in facts.get("owners", [])}
    # Snapshots from before there were shared logs have none.
    state.digests = Digests(facts.get("digest", 0), state.position)
    # Nor have those from before version 6 these.
    state.logs, state.place = facts.get("log", (1, 0))
    for source, target, low, judged in facts.get("arrivals", []):
        arrivals = state.arrivals[source, target] = Arrivals()
        arrivals.low, arrivals.judged = low, dict(judged)
    if "chronicle" in facts:  # Not in snapshots from before version 4.
        state.chronicle = Chronicle.of(facts["chronicle"])
    state.writers.closed = dict.fromkeys(map(bytes.fromhex, facts["closed"]))
    for key, version, last, applied, silent_ms, seen, handed in facts["writers"]:
        writer = state.writers.by_id[bytes.fromhex(key)] = Writer(version, seen)
        writer.last, writer.applied, writer.silent_ms = last, applied, silent_ms
        writer.handed = [(position, queue, sequence, delivery) for position, queue, sequence, delivery in handed]
    return state
