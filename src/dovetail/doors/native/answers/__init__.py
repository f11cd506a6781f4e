"""Every answer of a node: what it says, and its payload as bytes and back. docs/protocol.md draws each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.doors.native import frames
from dovetail.doors.native.answers.connection import (
    ARROW_FEATURE,
    CHALLENGE,
    FACTS_FEATURE,
    OPEN,
    RESERVE_FEATURE,
    STAGE_FEATURE,
    UNNUMBERED_FEATURE,
    Bye,
    Done,
    Error,
    Hello,
    Pong,
    Producing,
    Welcome,
)
from dovetail.doors.native.answers.messages import (
    ATTRIBUTES,
    DURABILITY,
    GROUPS,
    HISTORY,
    IDS,
    REFUSED,
    REPEAT,
    STATES,
    STORED,
    Arrow,
    Deliveries,
    Lane,
    Messages,
    Pushed,
    Run,
    Settled,
)
from dovetail.doors.native.answers.queues import REDRIVES, Counted, Named, Opened, Queues, Redriving, Tap, Taps
from dovetail.doors.native.answers.staging import Joined, OpenStage, Published, Reservation, Reservations, Reserved, Reserving, Staged
from dovetail.doors.native.fields import UNREADABLE, Malformed, NoSuchKind, Walk
from dovetail.doors.native.frames import Frame, Kind

__all__ = [
    "ARROW_FEATURE", "ATTRIBUTES", "CHALLENGE", "DURABILITY", "FACTS_FEATURE", "GROUPS", "HISTORY", "IDS", "OPEN", "REDRIVES", "REFUSED",
    "REPEAT", "STATES", "STORED", "Hello", "Welcome", "Error", "Bye", "Pong", "Done", "Opened", "Queues", "Named", "Lane", "Pushed", "Run",
    "Deliveries", "Settled", "Counted", "Messages", "Arrow", "Redriving", "Producing", "Tap", "Taps", "Joined", "Published", "OpenStage",
    "Staged", "Reserving", "Reserved", "Reservation", "Reservations", "RESERVE_FEATURE", "STAGE_FEATURE", "UNNUMBERED_FEATURE",
    "KINDS", "Answer", "decode", "encode", "flags_of",
]  # fmt: skip

Answer = (
    Hello
    | Welcome
    | Error
    | Bye
    | Pong
    | Done
    | Opened
    | Queues
    | Named
    | Pushed
    | Deliveries
    | Settled
    | Counted
    | Messages
    | Arrow
    | Redriving
    | Producing
    | Taps
    | Published
    | Staged
    | Reserving
    | Reserved
    | Reservations
)

KINDS: dict[type[Any], Kind] = {
    Hello: Kind.HELLO,
    Welcome: Kind.WELCOME,
    Error: Kind.ERROR,
    Bye: Kind.BYE,
    Pong: Kind.PONG,
    Done: Kind.DONE,
    Opened: Kind.OPENED,
    Queues: Kind.QUEUES,
    Named: Kind.NAMED,
    Pushed: Kind.PUSHED,
    Deliveries: Kind.DELIVERIES,
    Settled: Kind.SETTLED,
    Counted: Kind.COUNTED,
    Messages: Kind.MESSAGES,
    Arrow: Kind.ARROW,
    Redriving: Kind.REDRIVING,
    Producing: Kind.PRODUCING,
    Taps: Kind.TAPS,
    Published: Kind.PUBLISHED,
    Staged: Kind.STAGED,
    Reserving: Kind.RESERVING,
    Reserved: Kind.RESERVED,
    Reservations: Kind.RESERVATIONS,
}
DECODERS: dict[int, Callable[[Walk, int], Answer]] = {int(kind): made.decode for made, kind in KINDS.items()}


def encode(answer: Answer, number: int) -> bytes:
    """The frame of an answer."""
    return frames.encode(KINDS[type(answer)], number, answer.encode(), flags_of(answer))


def flags_of(answer: Answer) -> int:
    if not isinstance(answer, Deliveries | Messages):
        return 0
    flags = IDS * (answer.ids is not None) | GROUPS * (answer.groups is not None) | ATTRIBUTES * (answer.attributes is not None)
    return flags | HISTORY * (isinstance(answer, Messages) and answer.receives is not None)


def decode(frame: Frame) -> Answer:
    """The answer in a frame. NoSuchKind or Malformed, and no other error, whatever the bytes."""
    read = DECODERS.get(frame.kind)
    if read is None:
        raise NoSuchKind(f"no answer has the kind {frame.kind}")
    walk = Walk(frame.payload)
    try:
        answer = read(walk, frame.flags)
    except UNREADABLE as error:
        raise Malformed(f"the payload is cut short or garbled: {error}") from None
    walk.end()
    return answer
