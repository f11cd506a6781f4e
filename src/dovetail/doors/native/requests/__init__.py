"""Every request: what it says, and its payload as bytes and back. docs/protocol.md draws each of them.

To add one: give it a free number in frames.Kind, a class here with `encode` and `decode`, a line in KINDS, a handler in the node. Never
change the bytes of a kind that was released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.doors.native import frames
from dovetail.doors.native.fields import UNREADABLE, Malformed, NoSuchKind, Walk
from dovetail.doors.native.frames import Frame, Kind
from dovetail.doors.native.requests.connection import Auth, Ping, Producer, Skip
from dovetail.doors.native.requests.facts import FACTS_POSITION, FactsAbout, FactsAdvance, FactsOpen, FactsRead
from dovetail.doors.native.requests.messages import (
    DELETE,
    BySequence,
    CompletePull,
    CompletePush,
    Consume,
    Credit,
    Pull,
    Push,
    Settle,
    Stop,
)
from dovetail.doors.native.requests.queues import (
    ARROW,
    TAP_POSITION,
    About,
    Configure,
    Declare,
    List,
    Open,
    Peek,
    Redrive,
    TapAdvance,
    TapClose,
    TapOpen,
    TapRead,
)
from dovetail.doors.native.requests.reserving import Reservation, Reserve, ReserveRead, ReserveSettle
from dovetail.doors.native.requests.staging import KEPT, Publish, Stage, Stages, Unstage

__all__ = [
    "FACTS_POSITION",
    "ARROW", "DELETE", "TAP_POSITION", "Auth", "Ping", "Producer", "Skip", "Open", "Declare", "Configure", "List", "Peek", "Redrive",
    "About", "TapOpen", "TapRead", "TapAdvance", "TapClose", "Push", "Pull", "Consume", "Credit", "Stop", "Settle", "CompletePull",
    "CompletePush", "BySequence", "KEPT", "Stage", "Publish", "Unstage", "Stages", "Reservation", "Reserve", "ReserveRead",
    "ReserveSettle", "FactsAbout", "FactsAdvance", "FactsOpen", "FactsRead", "KINDS", "Request", "decode", "encode",
]  # fmt: skip

Request = (
    Auth
    | Ping
    | Open
    | Declare
    | Configure
    | List
    | Push
    | Pull
    | Consume
    | Credit
    | Stop
    | Settle
    | CompletePull
    | CompletePush
    | BySequence
    | About
    | Peek
    | Redrive
    | Producer
    | Skip
    | TapOpen
    | TapRead
    | TapAdvance
    | TapClose
    | Stage
    | Publish
    | Unstage
    | Stages
    | Reservation
    | Reserve
    | ReserveRead
    | ReserveSettle
    | FactsOpen
    | FactsRead
    | FactsAdvance
    | FactsAbout
)

KINDS: dict[type[Any], Kind] = {
    Auth: Kind.AUTH,
    Ping: Kind.PING,
    Open: Kind.OPEN,
    Declare: Kind.DECLARE,
    Configure: Kind.CONFIGURE,
    List: Kind.LIST,
    Push: Kind.PUSH,
    Pull: Kind.PULL,
    Consume: Kind.CONSUME,
    Credit: Kind.CREDIT,
    Stop: Kind.STOP,
    CompletePull: Kind.COMPLETE_PULL,
    CompletePush: Kind.COMPLETE_PUSH,
    Peek: Kind.PEEK,
    Redrive: Kind.REDRIVE,
    Producer: Kind.PRODUCER,
    Skip: Kind.SKIP,
    TapOpen: Kind.TAP_OPEN,
    TapRead: Kind.TAP_READ,
    TapAdvance: Kind.TAP_ADVANCE,
    TapClose: Kind.TAP_CLOSE,
    Stage: Kind.STAGE,
    Publish: Kind.PUBLISH,
    Unstage: Kind.UNSTAGE,
    Stages: Kind.STAGES,
    Reserve: Kind.RESERVE,
    ReserveRead: Kind.RESERVE_READ,
    ReserveSettle: Kind.RESERVE_SETTLE,
    FactsOpen: Kind.FACTS_OPEN,
    FactsRead: Kind.FACTS_READ,
    FactsAdvance: Kind.FACTS_ADVANCE,
}
"""Request → kind. A Settle, a BySequence, an About, a Reservation and a FactsAbout name theirs themselves."""
DECODERS: dict[int, Callable[[Walk, int], Request]] = {
    **{int(kind): made.decode for made, kind in KINDS.items()},
    **{kind: Settle.decoder(kind) for kind in (Kind.COMPLETE, Kind.REQUEUE, Kind.EXTEND, Kind.RELEASE)},
    **{kind: BySequence.decoder(kind) for kind in (Kind.CANCEL, Kind.RESCHEDULE, Kind.RECLAIM)},
    **{
        kind: About.decoder(kind)
        for kind in (
            Kind.DROP,
            Kind.NAME,
            Kind.PURGE,
            Kind.COUNTS,
            Kind.REDRIVE_STATUS,
            Kind.REDRIVE_CANCEL,
            Kind.TAP_LIST,
            Kind.RESERVE_LIST,
        )
    },
    **{kind: Reservation.decoder(kind) for kind in (Kind.RESERVE_OPEN, Kind.RESERVE_RELEASE, Kind.RESERVE_CLOSE)},
    **{kind: FactsAbout.decoder(kind) for kind in (Kind.FACTS_LIST, Kind.FACTS_CLOSE)},
}
_FLAGS: dict[int, int] = {Kind.PULL: DELETE, Kind.CONSUME: DELETE, Kind.TAP_READ: ARROW, Kind.RESERVE_READ: ARROW, Kind.UNSTAGE: KEPT}
"""The flags that a kind knows; any other bit is refused."""


def encode(request: Request, number: int) -> bytes:
    """The frame of a request."""
    flags = 0
    if isinstance(request, Pull | Consume):
        flags = DELETE * request.delete
    elif isinstance(request, TapRead | ReserveRead):
        flags = ARROW * request.arrow
    elif isinstance(request, Unstage):
        flags = KEPT * request.kept
    kind = request.kind if isinstance(request, Settle | BySequence | About | Reservation | FactsAbout) else KINDS[type(request)]
    return frames.encode(kind, number, request.encode(), flags)


def decode(frame: Frame) -> Request:
    """The request in a frame. NoSuchKind or Malformed, and no other error, whatever the bytes."""
    read = DECODERS.get(frame.kind)
    if read is None:
        raise NoSuchKind(f"no request has the kind {frame.kind}")
    if frame.flags & ~_FLAGS.get(frame.kind, 0):
        raise Malformed("a flag that this kind does not know")
    walk = Walk(frame.payload)
    try:
        request = read(walk, frame.flags)
    except UNREADABLE as error:
        raise Malformed(f"the payload is cut short or garbled: {error}") from None
    walk.end()
    return request
