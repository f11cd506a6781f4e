"""Requests about the connection and who uses it: callers and producers."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from dovetail.doors.native.fields import Walk

_AUTH = Struct("<32s32s")
_SKIP = Struct("<16sQQ")


class Auth(NamedTuple):
    """Who calls: an access key, and the proof that its secret is known. On an open node all of it may be empty."""

    key: str
    nonce: bytes
    proof: bytes

    def encode(self) -> bytes:
        return _AUTH.pack(self.nonce, self.proof) + self.key.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Auth:
        nonce, proof = walk.fixed(_AUTH)
        return cls(walk.rest_text(), nonce, proof)


class Ping(NamedTuple):
    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Ping:
        return cls()


class Producer(NamedTuple):
    """Open a numbered producer."""

    identity: bytes

    def encode(self) -> bytes:
        return self.identity

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Producer:
        return cls(bytes(walk.take(16)))


class Skip(NamedTuple):
    """Give a number up for good. `identity` is the one that PRODUCING answered."""

    identity: bytes
    epoch: int
    number: int

    def encode(self) -> bytes:
        return _SKIP.pack(*self)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Skip:
        return cls(*walk.fixed(_SKIP))
