"""Answers about the connection and who uses it, and the two that any request may get: Done and Error."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Walk

ARROW_FEATURE = 1
"""In WELCOME: this node answers reads of taps, and of reserved batches, with Arrow."""
STAGE_FEATURE = 2
"""It takes stages, and publishes them."""
RESERVE_FEATURE = 4
"""It knows reservations."""
FACTS_FEATURE = 8
"""It knows facts taps, whose reads are Arrow."""
UNNUMBERED_FEATURE = 16
"""It takes no numbers of producers: its namespace lies in several logs."""
OPEN, CHALLENGE = 0, 1
"""In HELLO: whether a proof is asked for."""

_H = Struct("<H")
_Q = Struct("<Q")
_QQ = Struct("<QQ")
_HELLO = Struct("<HHI32s")
_WELCOME = Struct("<32s16sQIIIIIIII")
_ERROR = Struct("<HBBIQQ")


class Hello(NamedTuple):
    """The node's first word: the version that is spoken, how callers prove themselves, and a nonce for that."""

    version: int
    auth: int
    nonce: bytes

    def encode(self) -> bytes:
        return _HELLO.pack(self.version, self.auth, 0, self.nonce)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Hello:
        version, auth, _, nonce = walk.fixed(_HELLO)
        return cls(version, auth, nonce)


class Welcome(NamedTuple):
    """Whom the node takes the caller for, and what it may ask for."""

    proof: bytes
    """The node's own proof that it knows the secret; zeros on an open node."""
    salt: bytes
    """By which ids are made of (queue, sequence)."""
    now_ms: int
    """The node's time, by which leases and delays are judged."""
    request_bytes_max: int
    record_bytes_max: int
    """The largest record of one push."""
    batch_messages_max: int
    in_flight_max: int
    waits_max: int
    idle_ms: int
    features: int
    account: str
    namespace: str
    durability: str
    name: str
    version: str
    addresses: Sequence[str]

    def encode(self) -> bytes:
        texts = [self.account, self.namespace, self.durability, self.name, self.version]
        return (
            _WELCOME.pack(
                self.proof, self.salt, self.now_ms, self.request_bytes_max, self.record_bytes_max, self.batch_messages_max,
                self.in_flight_max, self.waits_max, self.idle_ms, self.features, 0,
            )
            + b"".join(map(fields.text, texts))
            + _H.pack(len(self.addresses))
            + b"".join(map(fields.text, self.addresses))
        )  # fmt: skip

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Welcome:
        values: list[Any] = [*walk.fixed(_WELCOME)[:-1], *(walk.text() for _ in range(5))]
        (count,) = walk.fixed(_H)
        return cls._make([*values, [walk.text() for _ in range(count)]])


class Error(NamedTuple):
    """The rule that was broken. `unknown` says that it may have happened all the same. Details by code: of TAP_CUT the first lost sequence
    and how many, of THROTTLED after how many milliseconds to try again."""

    code: int
    text: str
    unknown: bool = False
    first: int = 0
    second: int = 0

    def encode(self) -> bytes:
        return _ERROR.pack(self.code, self.unknown, 0, 0, self.first, self.second) + self.text.encode(errors="replace")

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Error:
        code, unknown, _, _, first, second = walk.fixed(_ERROR)
        return cls(code, walk.rest_text(), bool(unknown), first, second)


class Bye(NamedTuple):
    """The node reads no further: everything up to the request `last` is answered, what lies behind was not looked at."""

    last: int
    text: str = ""

    def encode(self) -> bytes:
        return _Q.pack(self.last) + self.text.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Bye:
        (last,) = walk.fixed(_Q)
        return cls(last, walk.rest_text())


class Pong(NamedTuple):
    now_ms: int

    def encode(self) -> bytes:
        return _Q.pack(self.now_ms)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Pong:
        return cls(*walk.fixed(_Q))


class Done(NamedTuple):
    """It happened; `value` is a count or a sequence where the request has one."""

    value: int = 0

    def encode(self) -> bytes:
        return _Q.pack(self.value)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Done:
        return cls(*walk.fixed(_Q))


class Producing(NamedTuple):
    """A producer is open: the identity to number under, its epoch, and the last number that it used."""

    identity: bytes
    epoch: int
    last: int

    def encode(self) -> bytes:
        return self.identity + _QQ.pack(self.epoch, self.last)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Producing:
        identity = bytes(walk.take(16))
        return cls(identity, *walk.fixed(_QQ))
