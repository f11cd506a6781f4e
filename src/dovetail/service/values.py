"""What goes in and what comes back: messages to send, answers, what was looked at, and the checks on the way in.

Durations are seconds here and integer milliseconds below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, overload

from dovetail.core import message as identity
from dovetail.core.message import Attribute, dedup_hash, encode_attributes
from dovetail.core.operation import DEFAULT
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.service.fact import Happened
from dovetail.service.verbs import Place
from dovetail.stores import store as seam

Value = str | bytes | int | float | Attribute


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, where a body alone does not say enough."""

    body: bytes
    delay_s: float | None = None
    group: str | None = None
    attributes: Mapping[str, Value] | None = None
    deduplication: str | None = None
    id: str | None = None


class Sent:
    """A message that was stored. `durability` is what had been reached when the answer was given."""

    __slots__ = ("_identity", "_lane", "durability", "repeat", "sequence")

    def __init__(self, lane: Place, sequence: int, durability: str, repeat: bool = False, identity: bytes = b"") -> None:
        self._lane = lane
        self._identity = identity
        self.sequence = sequence
        self.durability = durability
        self.repeat = repeat
        """It had been stored before, by its deduplication or its number, and was not stored again."""

    @property
    def id(self) -> str:
        # Made when it is asked for: most senders never look.
        return identity.id_text(self._identity or self._lane.id_of(self.sequence))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sent) and (self.id, self.sequence, self.repeat) == (other.id, other.sequence, other.repeat)

    def __hash__(self) -> int:
        return hash((self.sequence, self.repeat))

    def __repr__(self) -> str:
        return f"Sent(id={self.id!r}, sequence={self.sequence}, durability={self.durability!r}, repeat={self.repeat})"


class SentMany(Sequence[Sent]):
    """The answers to a batch of plain messages, each made when it is looked at."""

    __slots__ = ("_durability", "_lane", "sequences")

    def __init__(self, lane: Place, sequences: Sequence[int], durability: str) -> None:
        self._lane = lane
        self._durability = durability
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    @overload
    def __getitem__(self, index: int) -> Sent: ...

    @overload
    def __getitem__(self, index: slice) -> SentMany: ...

    def __getitem__(self, index: int | slice) -> Sent | SentMany:
        if isinstance(index, slice):
            return SentMany(self._lane, self.sequences[index], self._durability)
        return Sent(self._lane, self.sequences[index], self._durability)

    def __repr__(self) -> str:
        return f"SentMany({list(self)!r})"


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message that was looked at without receiving it."""

    id: str
    sequence: int
    body: bytes
    group: str | None
    attributes: dict[str, Attribute]
    receives: int
    sent_at_ms: int
    state: str


@dataclass(frozen=True, slots=True)
class Tapped:
    """A message as a tap reads it."""

    sequence: int
    id: str
    body: bytes
    group: str | None
    attributes: dict[str, Attribute]
    time_ms: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """A message of a batch that is set aside. It has no receipt: the batch is settled as a whole."""

    sequence: int
    id: str
    body: bytes
    group: str | None
    attributes: dict[str, Attribute]
    receives: int
    """How often it had been received before."""
    sent_at_ms: int
    first_received_ms: int
    source: str | None
    """The queue it was moved from as a dead letter."""


@dataclass(frozen=True, slots=True)
class OpenStage:
    """A stage that was not published yet."""

    name: bytes
    """As the node keeps it: where it asks for accounts not as it was given."""
    began_ms: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What a tap read. Reading from `next` continues behind it."""

    messages: list[Tapped]
    next: int

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class FactsBatch:
    """What a facts tap read. Reading from `next` continues behind it."""

    facts: list[Happened]
    next: int

    def __len__(self) -> int:
        return len(self.facts)


@dataclass(frozen=True, slots=True)
class ArrowBatch:
    """What a tap, or a read of a reserved batch, gives as an Arrow IPC stream of one record batch: queue, sequence, time, id, group,
    attributes, body. A facts tap has columns of its own."""

    stream: bytes
    next: int

    def table(self) -> Any:
        """As a pyarrow.Table. Any, because pyarrow is not among what Dovetail needs: only this asks for it."""
        return import_module("pyarrow").ipc.open_stream(self.stream).read_all()


def ms(seconds: float | None) -> int:
    if seconds is None:
        return DEFAULT
    try:
        some = 0 <= seconds < float("inf")
    except TypeError:
        some = False
    if not some:
        raise BadRequest(f"{seconds!r} is no duration in seconds")
    return round(seconds * 1000)


def utf8(text: str) -> bytes:
    if not isinstance(text, str):
        raise BadRequest(f"{text!r} is not text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{text[:40]!r} cannot be encoded: {error.reason}") from None


def attributes_of(values: Mapping[str, Value] | None) -> bytes:
    if not values:
        return b""
    for name in values:
        utf8(name)
    return encode_attributes({name: _attribute(value) for name, value in values.items()})


def _attribute(value: Value) -> Attribute:
    match value:
        case Attribute():
            return value
        case str():
            return Attribute("String", utf8(value))
        case bytes():
            return Attribute("Binary", value)
        case int() | float():
            return Attribute("Number", str(value).encode())
    raise BadRequest(f"an attribute is text, bytes or a number, not {type(value).__name__}")


def outgoing(one: bytes | Outgoing) -> seam.Outgoing:
    if isinstance(one, bytes):
        return seam.Outgoing(one)
    if not isinstance(getattr(one, "body", None), bytes):
        raise BadRequest("a body is bytes; text is sent as text.encode()")
    own = identity.id_bytes(one.id) if one.id else b""
    if own and not any(own):
        raise BadRequest("an id of zeros names nothing")
    return seam.Outgoing(
        one.body,
        ms(one.delay_s),
        utf8(one.group) if one.group else b"",
        attributes_of(one.attributes),
        dedup_hash(utf8(one.deduplication)) if one.deduplication else b"",
        own,
    )


def queue_rules(
    *,
    lease_s: float | None = None,
    delay_s: float | None = None,
    retention_s: float | None = None,
    max_receives: int | None = None,
    deduplication_s: float | None = None,
    groups: bool | None = None,
    in_flight_max: int | None = None,
    backoff_s: float | None = None,
    backoff_max_s: float | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The rules that were named, in the words of the core."""
    given: dict[str, Any] = {
        "lease_ms": None if lease_s is None else ms(lease_s),
        "delay_ms": None if delay_s is None else ms(delay_s),
        "retention_ms": None if retention_s is None else ms(retention_s),
        "receives_max": max_receives,
        "dedup_ms": None if deduplication_s is None else ms(deduplication_s),
        "grouped": groups,
        "in_flight_max": in_flight_max,
        "backoff_ms": None if backoff_s is None else ms(backoff_s),
        "backoff_max_ms": None if backoff_max_s is None else ms(backoff_max_s),
        "extra": extra,
    }
    named = {name: value for name, value in given.items() if value is not None}
    for name, value in named.items():
        if name == "extra":
            _check_extra(value)
        elif name == "grouped":
            if type(value) is not bool:
                raise BadRequest(f"groups is True or False, not {value!r}")
        elif type(value) is not int or not 0 <= value < 1 << 63:
            raise LimitExceeded(f"{name} is {value!r}; a whole number from 0 on is allowed")
    return named


def _check_extra(extra: Mapping[str, str]) -> None:
    if not all(type(part) is str and part.isprintable() for pair in extra.items() for part in pair):
        raise BadRequest("what is kept with a queue is printable text by printable text")
