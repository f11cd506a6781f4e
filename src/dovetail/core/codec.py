"""Operations as bytes and back. Little-endian; an operation begins with its kind; docs/format-entry.md draws every one of them.

    Push      core/pushcodec.py
    Settle    | kind | 0 | 0 u16 | count u32 | queue u64 | parameter i64 | sequences u64 × count | deliveries u64 × count

    Stage     | kind | 0 × 3 | number u32 | stage 16 | a Push without numbers
    Publish   | kind | 0 × 3 | count u32 | owner 16 | batch u64 | stages: 16 × count
    Leave …   core/movecodec.py
    Facts…    | kind | 0 | bytes of namespace u16 | 0 u32 | number u64 | age u64 | bytes u64 | namespace | name

To add a kind: give it a free number in `Kind` (44 to 47 are facts taps; 53 to 63, 69 to 71, 77 to 79 and 128 on are free; 85 to 127 are
kept for forks), a NamedTuple in operation.py, a line in _ENCODERS and in _DECODERS, and an apply handler
in state.py; raise the apply version when old nodes would not know it. Never change the bytes of a kind that was released.

The decoder is total: any bytes give an operation or a CodecError, and it allocates no more than it was given.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from struct import Struct, unpack_from
from struct import error as struct_error
from typing import Any

from dovetail.core import movecodec
from dovetail.core import operation as op
from dovetail.core.consecutive import numbers
from dovetail.core.operation import Attributes, Head, Kind, Operation, Push
from dovetail.core.pushcodec import ATTRIBUTES as ATTRIBUTES
from dovetail.core.pushcodec import DEDUPS as DEDUPS
from dovetail.core.pushcodec import DELAY as DELAY
from dovetail.core.pushcodec import DELAYS as DELAYS
from dovetail.core.pushcodec import GROUPS as GROUPS
from dovetail.core.pushcodec import HEAD, NUMBERS, TWO, Reader
from dovetail.core.pushcodec import IDS as IDS
from dovetail.core.pushcodec import NUMBERED as NUMBERED
from dovetail.core.pushcodec import Data as Data
from dovetail.core.pushcodec import decode_push as decode_push
from dovetail.core.pushcodec import encode_push as encode_push
from dovetail.errors import CodecError
from dovetail.limits import BATCH_MESSAGES_MAX, DELAY_MS_MAX, RESERVE_MESSAGES_MAX, STAGES_PER_PUBLISH_MAX

VERSION = 1
"""Of the entry head. An unknown one stops the node."""

_SETTLE = Struct("<BBHIQq")
_HEAD = Struct("<BBHiQ")
_HEAD_WRITER = Struct("<16sQQQ")
_Q = Struct("<Q")


def encode_head(head: Head) -> bytes:
    """16 bytes on `local`; a writer's number and what it had applied follow on shared logs."""
    if not head.writer:
        return _HEAD.pack(VERSION, 0, 0, head.ahead_s, head.stamp)
    return _HEAD.pack(VERSION, 1, 0, head.ahead_s, head.stamp) + _HEAD_WRITER.pack(head.writer, head.number, head.applied, head.digest)


def decode_head(data: Data) -> Head:
    try:
        version, flags, _, ahead_s, stamp = _HEAD.unpack_from(data)
        if version != VERSION or flags > 1:
            raise CodecError(f"entry head of version {version}; this node knows {VERSION}")
        writer, number, applied, digest = _HEAD_WRITER.unpack_from(data, _HEAD.size) if flags else (b"", 0, 0, 0)
        return Head(stamp, writer, number, applied, digest, ahead_s)
    except struct_error as error:
        raise CodecError(f"entry head: {error}") from None


def encode_stage(stage: bytes, number: int, record: bytes) -> bytes:
    """A Stage around the record of its push."""
    return _STAGE.pack(Kind.STAGE, number, stage) + record


def encode(operation: Operation) -> bytes:
    return _ENCODERS[type(operation)](operation)


def decode(data: Data) -> Operation:
    try:
        return _DECODERS[data[0]](data)
    except KeyError:
        raise CodecError(f"operation of unknown kind {data[0]}") from None
    except (struct_error, IndexError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CodecError(f"operation of kind {data[0] if len(data) else 'none'}: {error}") from None


# What lies in a record


def push_in(record: Data) -> Data:
    """The push inside a record that holds one: a Push itself, a CompletePush, a Carry, a Stage, a StageCarry or an Arrive."""
    kind = record[0]
    if kind == Kind.PUSH:
        return record
    if kind == Kind.COMPLETE_PUSH:
        return record[_complete_size(record) :]
    if kind == Kind.CARRY:
        return record[_CARRY.size :]
    if kind == Kind.STAGE:
        return record[_STAGE.size :]
    if kind == Kind.STAGE_CARRY:
        return record[_STAGE_CARRY.size :]
    if kind == Kind.ARRIVE:
        return record[movecodec.ARRIVE.size :]
    raise CodecError(f"no message lies in a record of kind {kind}")


def messages_in(record: Data) -> int:
    """How many messages share this record."""
    return int(HEAD.unpack_from(push_in(record))[3])


class Item:
    """One message of a record, without decoding its neighbours."""

    __slots__ = ("attributes", "body", "group", "id")

    def __init__(self, record: Data, index: int) -> None:
        try:
            data = push_in(record)
            _, flags, queue_count, count = HEAD.unpack_from(data)
            if index >= count:
                raise CodecError(f"a record of {count} messages has no message {index}")
            at = HEAD.size + 8 * queue_count
            if not flags:
                # Nothing but bodies: by far the most frequent, and this is run for every message that is handed out.
                self.id = self.group = self.attributes = b""
                start, end = TWO.unpack_from(data, at + 4 * index)
                at += 4 * (count + 1)
                self.body = bytes(data[at + start : at + end])
                return
            reader = Reader(data, at)
            if flags & NUMBERED:
                reader.at += NUMBERS.size
            if flags & DELAY:
                reader.at += 8
            if flags & DELAYS:
                reader.at += 8 * count
            if flags & DEDUPS:
                reader.at += 16 * count
            self.id = bytes(reader.take(16 * count)[16 * index : 16 * index + 16]) if flags & IDS else b""
            self.group = _pick(reader, count, index) if flags & GROUPS else b""
            self.attributes = _pick(reader, count, index) if flags & ATTRIBUTES else b""
            self.body = _pick(reader, count, index)
        except (struct_error, IndexError) as error:
            raise CodecError(f"a message in a record: {error}") from None


def bodies_in(record: Data, first: int, count: int) -> list[bytes] | None:
    """The bodies of neighbours in a record that holds nothing but bodies; None where there is more to a message than that."""
    data = push_in(record)
    _, flags, queue_count, total = HEAD.unpack_from(data)
    if flags or first + count > total:
        return None
    at = HEAD.size + 8 * queue_count
    offsets = unpack_from(f"<{count + 1}I", data, at + 4 * first)
    at += 4 * (total + 1)
    blob = bytes(data[at + offsets[0] : at + offsets[-1]])
    return [blob[start - offsets[0] : end - offsets[0]] for start, end in pairwise(offsets)]


def _pick(reader: Reader, count: int, index: int) -> bytes:
    """One string of the column that comes next; the reader goes behind the column."""
    start, end = TWO.unpack_from(reader.data, reader.at + 4 * index)
    base = reader.at + 4 * (count + 1)
    value = bytes(reader.data[base + start : base + end])
    reader.skip_column(count)
    return value


# Everything else


def _encode_settle(kind: Kind, queue: int, sequences: Sequence[int], deliveries: Sequence[int] | None, parameter: int) -> bytes:
    head = _SETTLE.pack(kind, 0, 0, len(sequences), queue, parameter)
    if len(sequences) == 1:
        return head + _Q.pack(sequences[0]) + (_Q.pack(deliveries[0]) if deliveries is not None else b"")
    return head + numbers(sequences) + (numbers(deliveries) if deliveries is not None else b"")


def _decode_settle(data: Data, receipts: bool) -> tuple[int, int, Sequence[int], Sequence[int], int]:
    """(queue, parameter, sequences, deliveries, size)"""
    _, _, _, count, queue, parameter = _SETTLE.unpack_from(data)
    if count > BATCH_MESSAGES_MAX:
        raise CodecError(f"{count} messages in one operation; at most {BATCH_MESSAGES_MAX}")
    reader = Reader(data, _SETTLE.size)
    if count == 1:
        pair = reader.take(16 if receipts else 8).cast("Q").tolist()
        return queue, parameter, pair[:1], pair[1:], reader.at
    sequences = array("Q", reader.take(8 * count).tobytes())
    deliveries = array("Q", reader.take(8 * count).tobytes()) if receipts else array("Q")
    return queue, parameter, sequences, deliveries, reader.at


def _complete_size(record: Data) -> int:
    return _SETTLE.size + 16 * int(_SETTLE.unpack_from(record)[3])


def _encode_attributes(attributes: Attributes) -> bytes:
    values = {field.name: getattr(attributes, field.name) for field in fields(Attributes)}
    values["extra"] = dict(attributes.extra)
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _decode_attributes(data: Data) -> Attributes:
    values = json.loads(bytes(data))
    known = {field.name for field in fields(Attributes)}
    if not isinstance(values, dict) or not values.keys() <= known:
        raise CodecError("attributes that this version does not know")
    for name, value in values.items():
        if name == "extra":
            valid = type(value) is dict and all(type(part) is str for pair in value.items() for part in pair)
        else:
            valid = type(value) is bool if name == "grouped" else type(value) is int and 0 <= value < 1 << 63
        if not valid:
            raise CodecError(f"the attribute {name} has no valid value")
    return Attributes(**values)


def _text(data: Data) -> str:
    return bytes(data).decode()


_FIXED: dict[type[Any], tuple[Kind, Struct]] = {
    op.Begin: (Kind.BEGIN, Struct("<B7x32s")),
    op.Upgrade: (Kind.UPGRADE, Struct("<B7xQ")),
    op.Unregister: (Kind.UNREGISTER, Struct("<B7xQ")),
    op.Drop: (Kind.DROP, Struct("<B7xQ")),
    op.Purge: (Kind.PURGE, Struct("<B7xQ")),
    op.Expire: (Kind.EXPIRE, Struct("<B7xQQ")),
    op.Move: (Kind.MOVE, Struct("<B7xQQQ")),
    op.ProducerOpen: (Kind.PRODUCER_OPEN, Struct("<B7x16s")),
    op.Skip: (Kind.SKIP, Struct("<B7x16sQQ")),
    op.Trim: (Kind.TRIM, Struct("<B7xQ")),
    op.Tick: (Kind.TICK, Struct("<B7x")),
    op.Retime: (Kind.RETIME, Struct("<B7xQ")),
    op.StageExpire: (Kind.STAGE_EXPIRE, Struct("<B7xQ")),
    **movecodec.FIXED,
}
_OPEN = Struct("<B7x16sQ")
_POP = Struct("<BBHIQqQ")
_CARRY = Struct("<B7xQQQ")
_TAP = Struct("<B7xQQQQ")
_FACTS = Struct("<BxH4xQQQ")
_STAGE = Struct("<B3xI16s")
_STAGE_CARRY = Struct("<B7x16sQ")
_PUBLISH = Struct("<B3xI16sQ")
_UNSTAGE = Struct("<B3xI")
_RESERVE = Struct("<B7xQQQQ")
_RESERVE_SETTLE = Struct("<B7xQQQ")
_RESERVATION = Struct("<B7xQ")


def _fixed_encoder(kind: Kind, layout: Struct) -> Callable[[Any], bytes]:
    return lambda operation: layout.pack(kind, *operation)


def _fixed_decoder(made: type[Any], layout: Struct) -> Callable[[Data], Operation]:
    def decode_fixed(data: Data) -> Operation:
        if len(data) != layout.size:
            raise CodecError(f"{made.__name__} has {len(data)} bytes in place of {layout.size}")
        return made(*layout.unpack(data)[1:])  # type: ignore[no-any-return]  # made is one of the keys of _FIXED

    return decode_fixed


def _decode_open(data: Data) -> op.Open:
    _, writer, version = _OPEN.unpack_from(data)
    before = bytes(data[_OPEN.size :])
    if len(before) not in (0, 16):
        raise CodecError(f"an Open of {len(data)} bytes")
    return op.Open(writer, version, before)


def _decode_pop(data: Data) -> op.Pop:
    _, flags, attempt_size, most, queue, lease_ms, wait_ms = _POP.unpack_from(data)
    if not 1 <= most <= BATCH_MESSAGES_MAX or lease_ms < op.DEFAULT or len(data) != _POP.size + attempt_size:
        raise CodecError(f"a pop of {most} messages for {lease_ms} ms in {len(data)} bytes")
    return op.Pop(queue, most, lease_ms, bool(flags & 1), wait_ms, bytes(data[_POP.size :]), bool(flags & 2))


def _decode_complete_push(data: Data) -> op.CompletePush:
    queue, _, sequences, deliveries, size = _decode_settle(data, True)
    return op.CompletePush(op.Complete(queue, sequences, deliveries), decode_push(data[size:]))


def _decode_carry(data: Data) -> op.Carry:
    queue, sequence, address = _CARRY.unpack_from(data)[1:]
    return op.Carry(queue, sequence, address, decode_push(data[_CARRY.size :]))


def _decode_register(data: Data) -> op.Register:
    split = 16 + _Q.unpack_from(data, 8)[0]
    return op.Register(_text(data[16:split]), _text(data[split:]))


def _decode_tap_open(data: Data) -> op.TapOpen:
    queue, start, age_ms, size = _TAP.unpack_from(data)[1:]
    return op.TapOpen(queue, _text(data[_TAP.size :]), start, age_ms, size)


def _encode_facts(kind: Kind, namespace: str, name: str, number: int = 0, age_ms: int = 0, size: int = 0) -> bytes:
    space = namespace.encode()
    return _FACTS.pack(kind, len(space), number, age_ms, size) + space + name.encode()


def _decode_facts(data: Data) -> op.FactsTapping:
    kind, length, number, age_ms, size = _FACTS.unpack_from(data)
    names, split = data[_FACTS.size :], length
    if len(names) < split:
        raise CodecError("a facts tap whose namespace is cut short")
    namespace, name = _text(names[:split]), _text(names[split:])
    if kind == Kind.FACTS_OPEN:
        return op.FactsOpen(namespace, name, number, age_ms, size)
    if age_ms or size or (kind == Kind.FACTS_CLOSE and number):
        raise CodecError(f"an operation of kind {kind} that says too much")
    if kind == Kind.FACTS_CLOSE:
        return op.FactsClose(namespace, name)
    return (op.FactsAdvance if kind == Kind.FACTS_ADVANCE else op.FactsCut)(namespace, name, number)


def _staged(data: Data) -> Push:
    """A push on a stage. Numbers have their outcome at once, and a stage has none before it is published."""
    push = decode_push(data)
    if push.numbered is not None or (push.delays is not None and max(push.delays) > DELAY_MS_MAX):
        raise CodecError("a staged push with numbers, or with a delay beyond its limit")
    return push


def _decode_stage(data: Data) -> op.Stage:
    number, stage = _STAGE.unpack_from(data)[1:]
    return op.Stage(stage, _staged(data[_STAGE.size :]), number)


def _decode_stage_carry(data: Data) -> op.StageCarry:
    stage, address = _STAGE_CARRY.unpack_from(data)[1:]
    return op.StageCarry(stage, address, _staged(data[_STAGE_CARRY.size :]))


def _stages(data: Data, at: int, count: int) -> list[bytes]:
    if count > STAGES_PER_PUBLISH_MAX or len(data) != at + 16 * count:
        raise CodecError(f"{count} stages in {len(data)} bytes; at most {STAGES_PER_PUBLISH_MAX} are allowed")
    return [bytes(data[start : start + 16]) for start in range(at, len(data), 16)]


def _decode_publish(data: Data) -> op.Publish:
    count, owner, batch = _PUBLISH.unpack_from(data)[1:]
    return op.Publish(_stages(data, _PUBLISH.size, count), owner, batch)


def _decode_reserve(data: Data) -> op.Reserve:
    queue, epoch, batch, most = _RESERVE.unpack_from(data)[1:]
    if not 1 <= most <= RESERVE_MESSAGES_MAX:
        raise CodecError(f"a reservation of {most} messages; 1 to {RESERVE_MESSAGES_MAX} are allowed")
    return op.Reserve(queue, _text(data[_RESERVE.size :]), epoch, batch, most)


def _decode_reserve_settle(data: Data) -> op.ReserveSettle:
    queue, epoch, batch = _RESERVE_SETTLE.unpack_from(data)[1:]
    return op.ReserveSettle(queue, _text(data[_RESERVE_SETTLE.size :]), epoch, batch)


def _reservation_encoder(kind: Kind) -> Callable[[Any], bytes]:
    return lambda o: _RESERVATION.pack(kind, o.queue) + o.name.encode()


def _reservation_decoder(made: type[Any]) -> Callable[[Data], Operation]:
    def decode_reservation(data: Data) -> Operation:
        return made(_RESERVATION.unpack_from(data)[1], _text(data[_RESERVATION.size :]))  # type: ignore[no-any-return]  # one of three

    return decode_reservation


def _settle_decoder(made: type[Any], receipts: bool, parameter: bool) -> Callable[[Data], Operation]:
    def decode_settle(data: Data) -> Operation:
        queue, value, sequences, deliveries, _ = _decode_settle(data, receipts)
        arguments = [queue, sequences, *([deliveries] if receipts else []), *([value] if parameter else [])]
        return made(*arguments)  # type: ignore[no-any-return]  # made is one of the settling operations

    return decode_settle


_ENCODERS: dict[type[Any], Callable[[Any], bytes]] = {
    **{made: _fixed_encoder(kind, layout) for made, (kind, layout) in _FIXED.items()},
    Push: encode_push,
    op.Open: lambda o: _OPEN.pack(Kind.OPEN, o.writer, o.version) + o.before,
    op.Pop: lambda o: _POP.pack(Kind.POP, o.delete | o.once << 1, len(o.attempt), o.max, o.queue, o.lease_ms, o.wait_ms) + o.attempt,
    op.Complete: lambda o: _encode_settle(Kind.COMPLETE, o.queue, o.sequences, o.deliveries, 0),
    op.Requeue: lambda o: _encode_settle(Kind.REQUEUE, o.queue, o.sequences, o.deliveries, o.after_ms),
    op.Extend: lambda o: _encode_settle(Kind.EXTEND, o.queue, o.sequences, o.deliveries, o.lease_ms),
    op.Release: lambda o: _encode_settle(Kind.RELEASE, o.queue, o.sequences, o.deliveries, 0),
    op.Reclaim: lambda o: _encode_settle(Kind.RECLAIM, o.queue, o.sequences, None, 0),
    op.Cancel: lambda o: _encode_settle(Kind.CANCEL, o.queue, o.sequences, None, 0),
    op.Reschedule: lambda o: _encode_settle(Kind.RESCHEDULE, o.queue, o.sequences, None, o.after_ms),
    op.Withdraw: lambda o: _encode_settle(Kind.WITHDRAW, o.queue, o.waiters, None, 0),
    op.CompletePush: lambda o: (
        _encode_settle(Kind.COMPLETE_PUSH, o.complete.queue, o.complete.sequences, o.complete.deliveries, 0) + encode_push(o.push)
    ),
    op.Carry: lambda o: _CARRY.pack(Kind.CARRY, o.queue, o.sequence, o.address) + encode_push(o.push),
    op.Register: lambda o: (
        bytes((Kind.REGISTER, 0, 0, 0, 0, 0, 0, 0)) + _Q.pack(len(o.namespace.encode())) + o.namespace.encode() + o.name.encode()
    ),
    op.Create: lambda o: Struct("<B7xQ").pack(Kind.CREATE, o.queue) + _encode_attributes(o.attributes),
    op.Configure: lambda o: Struct("<B7xQ").pack(Kind.CONFIGURE, o.queue) + _encode_attributes(o.attributes),
    op.TapOpen: lambda o: _TAP.pack(Kind.TAP_OPEN, o.queue, o.start, o.age_ms, o.bytes) + o.name.encode(),
    op.TapAdvance: lambda o: Struct("<B7xQQ").pack(Kind.TAP_ADVANCE, o.queue, o.sequence) + o.name.encode(),
    op.TapCut: lambda o: Struct("<B7xQQ").pack(Kind.TAP_CUT, o.queue, o.sequence) + o.name.encode(),
    op.TapClose: lambda o: Struct("<B7xQ").pack(Kind.TAP_CLOSE, o.queue) + o.name.encode(),
    op.FactsOpen: lambda o: _encode_facts(Kind.FACTS_OPEN, *o),
    op.FactsAdvance: lambda o: _encode_facts(Kind.FACTS_ADVANCE, *o),
    op.FactsCut: lambda o: _encode_facts(Kind.FACTS_CUT, *o),
    op.FactsClose: lambda o: _encode_facts(Kind.FACTS_CLOSE, *o),
    op.Stage: lambda o: encode_stage(o.stage, o.number, encode_push(o.push)),
    op.StageCarry: lambda o: _STAGE_CARRY.pack(Kind.STAGE_CARRY, o.stage, o.address) + encode_push(o.push),
    op.Publish: lambda o: _PUBLISH.pack(Kind.PUBLISH, len(o.stages), o.owner, o.batch) + b"".join(o.stages),
    op.Unstage: lambda o: _UNSTAGE.pack(Kind.UNSTAGE, len(o.stages)) + b"".join(o.stages),
    op.Reserve: lambda o: _RESERVE.pack(Kind.RESERVE, o.queue, o.epoch, o.batch, o.max) + o.name.encode(),
    op.ReserveSettle: lambda o: _RESERVE_SETTLE.pack(Kind.RESERVE_SETTLE, o.queue, o.epoch, o.batch) + o.name.encode(),
    op.ReserveOpen: _reservation_encoder(Kind.RESERVE_OPEN),
    op.ReserveRelease: _reservation_encoder(Kind.RESERVE_RELEASE),
    op.ReserveClose: _reservation_encoder(Kind.RESERVE_CLOSE),
    op.Leave: movecodec.encode_leave,
    op.Arrive: movecodec.encode_arrive,
    op.MoveSettle: movecodec.encode_settle,
}

_DECODERS: dict[int, Callable[[Data], Operation]] = {
    **{int(kind): _fixed_decoder(made, layout) for made, (kind, layout) in _FIXED.items()},
    Kind.PUSH: decode_push,
    Kind.OPEN: _decode_open,
    Kind.POP: _decode_pop,
    Kind.COMPLETE: _settle_decoder(op.Complete, True, False),
    Kind.REQUEUE: _settle_decoder(op.Requeue, True, True),
    Kind.EXTEND: _settle_decoder(op.Extend, True, True),
    Kind.RELEASE: _settle_decoder(op.Release, True, False),
    Kind.RECLAIM: _settle_decoder(op.Reclaim, False, False),
    Kind.CANCEL: _settle_decoder(op.Cancel, False, False),
    Kind.RESCHEDULE: _settle_decoder(op.Reschedule, False, True),
    Kind.WITHDRAW: _settle_decoder(op.Withdraw, False, False),
    Kind.COMPLETE_PUSH: _decode_complete_push,
    Kind.CARRY: _decode_carry,
    Kind.REGISTER: _decode_register,
    Kind.CREATE: lambda data: op.Create(_Q.unpack_from(data, 8)[0], _decode_attributes(data[16:])),
    Kind.CONFIGURE: lambda data: op.Configure(_Q.unpack_from(data, 8)[0], _decode_attributes(data[16:])),
    Kind.TAP_OPEN: _decode_tap_open,
    Kind.TAP_ADVANCE: lambda data: op.TapAdvance(_Q.unpack_from(data, 8)[0], _text(data[24:]), _Q.unpack_from(data, 16)[0]),
    Kind.TAP_CUT: lambda data: op.TapCut(_Q.unpack_from(data, 8)[0], _text(data[24:]), _Q.unpack_from(data, 16)[0]),
    Kind.TAP_CLOSE: lambda data: op.TapClose(_Q.unpack_from(data, 8)[0], _text(data[16:])),
    **dict.fromkeys((Kind.FACTS_OPEN, Kind.FACTS_ADVANCE, Kind.FACTS_CUT, Kind.FACTS_CLOSE), _decode_facts),
    Kind.STAGE: _decode_stage,
    Kind.STAGE_CARRY: _decode_stage_carry,
    Kind.PUBLISH: _decode_publish,
    Kind.UNSTAGE: lambda data: op.Unstage(_stages(data, _UNSTAGE.size, _UNSTAGE.unpack_from(data)[1])),
    Kind.RESERVE: _decode_reserve,
    Kind.RESERVE_SETTLE: _decode_reserve_settle,
    Kind.RESERVE_OPEN: _reservation_decoder(op.ReserveOpen),
    Kind.RESERVE_RELEASE: _reservation_decoder(op.ReserveRelease),
    Kind.RESERVE_CLOSE: _reservation_decoder(op.ReserveClose),
    Kind.LEAVE: movecodec.decode_leave,
    Kind.ARRIVE: movecodec.decode_arrive,
    Kind.MOVE_SETTLE: movecodec.decode_settle,
}
