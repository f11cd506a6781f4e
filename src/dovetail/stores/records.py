"""Records that callers made: the push in one, checked as if we had made it. What is written to the log is read again by every start, and by
whoever gets the message at whichever door.
"""

from __future__ import annotations

from dovetail.core import codec, message
from dovetail.core.column import Column
from dovetail.core.operation import Kind, Push
from dovetail.errors import BadRequest, CodecError, LimitExceeded
from dovetail.limits import BATCH_BYTES_MAX, BODY_BYTES_MAX, DELAY_MS_MAX, GROUP_BYTES_MAX, MESSAGE_BYTES_MAX

_KNOWN_FLAGS = 127


def push_of_record(record: bytes) -> Push:
    if not record or record[0] != Kind.PUSH:
        raise CodecError("the record is no push")
    try:
        push = codec.decode(record)
    except CodecError as error:
        raise CodecError(f"the record of a push: {error}") from None
    assert isinstance(push, Push)
    flags = record[1]
    if flags > _KNOWN_FLAGS or (flags & codec.DELAY and flags & codec.DELAYS):
        raise CodecError(f"the record of a push has flags {flags:#x}")
    if len(record) != _size(push, flags):
        raise CodecError(f"the record of a push has {len(record)} bytes and should have {_size(push, flags)}")
    _check_sizes(push)
    if push.delays is not None and max(push.delays) > DELAY_MS_MAX:
        raise LimitExceeded(f"a delay of {max(push.delays)} ms; at most {DELAY_MS_MAX} are allowed")
    if push.groups is not None:
        _check_groups(push.groups)
    if push.attributes is not None:
        for one in set(push.attributes):
            _check_attributes(one)
    return push


def _size(push: Push, flags: int) -> int:
    count = len(push.bodies)
    size = 8 + 8 * len(push.queues) + 32 * bool(flags & codec.NUMBERED) + 8 * bool(flags & codec.DELAY)
    size += count * (8 * bool(flags & codec.DELAYS) + 16 * bool(flags & codec.DEDUPS) + 16 * bool(flags & codec.IDS))
    for column in (push.groups, push.attributes, push.bodies):
        if column is not None:
            size += 4 * (count + 1) + (len(column.blob) + 3 & ~3)
    return size


def _check_sizes(push: Push) -> None:
    bodies, attributes = push.bodies, push.attributes
    total = len(bodies.blob) + (len(attributes.blob) if attributes is not None else 0)
    if total <= BODY_BYTES_MAX:
        return  # All together are smaller than one may be.
    if total > BATCH_BYTES_MAX:
        raise LimitExceeded(f"a batch of {total} bytes; at most {BATCH_BYTES_MAX} are allowed")
    for index in range(len(bodies)):
        body = bodies.offsets[index + 1] - bodies.offsets[index]
        size = body + (attributes.offsets[index + 1] - attributes.offsets[index] if attributes is not None else 0)
        if size > MESSAGE_BYTES_MAX or body > BODY_BYTES_MAX:
            raise LimitExceeded(f"a message of {size} bytes; at most {BODY_BYTES_MAX} are allowed")


def _check_groups(groups: Column) -> None:
    plain = bytes(groups.blob).isascii()
    if plain and len(groups.blob) <= GROUP_BYTES_MAX:
        return
    for group in groups:
        if len(group) > GROUP_BYTES_MAX:
            raise LimitExceeded(f"a group name of {len(group)} bytes; at most {GROUP_BYTES_MAX} are allowed")
        if not plain:
            try:
                group.decode()
            except UnicodeDecodeError as error:
                raise BadRequest(f"a group's name is not UTF-8: {error.reason}") from None


def _check_attributes(data: bytes) -> None:
    """They are read by whoever gets the message, at whichever door: what cannot be read there is refused here."""
    if not data:
        return
    try:
        same = message.encode_attributes(message.decode_attributes(data)) == data
    except CodecError as error:
        raise BadRequest(str(error)) from None
    if not same:
        raise BadRequest("attributes that are named twice, or with bytes behind them")
