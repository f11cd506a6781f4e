"""Facts taps over the wire, in bytes as docs/protocol.md draws them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.native.house import Inside
from tests.doors.native.stranger import Stranger, record, text
from tests.doors.native.test_auth import Signed, refused

pa = pytest.importorskip("pyarrow")
POSITION = 2**64 - 1


@pytest.fixture
def inside() -> Iterator[Inside]:
    made = Inside()
    yield made
    made.close()


def named(name: str, namespace: str = "") -> bytes:
    return text(namespace) + text(name)


def opened(stranger: Stranger, name: str, namespace: str = "", start: int = 0, age: int = 0) -> int:
    return stranger.done(stranger.ask("FACTS_OPEN", struct.pack("<QQQ", start, age, 0) + named(name, namespace)))


def read(stranger: Stranger, name: str, start: int = POSITION, most: int = 1000) -> tuple[int, int, Any]:
    """(next, end, the rows)"""
    answer = stranger.ask("FACTS_READ", struct.pack("<QII", start, most, 0) + named(name))
    assert answer.kind == "ARROW"
    queue, following, end, count, zero = struct.unpack_from("<QQQII", answer.payload)
    made = pa.ipc.open_stream(pa.py_buffer(answer.payload[32:])).read_all()
    made.validate(full=True)
    assert (queue, zero, made.num_rows) == (0, 0, count)
    return following, end, made


def test_facts_are_read_again_and_let_go_of(inside: Inside) -> None:
    stranger = inside.stranger()
    assert opened(stranger, "audit") == 1
    queue = stranger.declare("orders")
    stranger.push(record([queue], [b"a", b"bb", b"ccc"]))
    stranger.complete(queue, stranger.pull(queue, 2))
    following, end, rows = read(stranger, "audit")
    assert (following, end) == (9, 9)
    assert rows["kind"].to_pylist() == ["create", *["push"] * 3, *["delivery"] * 2, *["complete"] * 2]
    assert rows["bytes"].to_pylist()[1:4] == [1, 2, 3]
    assert read(stranger, "audit", 3, 4)[2].equals(rows.slice(2, 4))
    assert read(stranger, "audit", 9)[:2] == (9, 9)
    assert stranger.done(stranger.ask("FACTS_ADVANCE", struct.pack("<Q", 5) + named("audit"))) == 5
    refused("BAD_REQUEST", lambda: read(stranger, "audit", 4))
    taps = stranger.ask("FACTS_LIST", named("")).payload
    assert struct.unpack_from("<IIQQQQ", taps) == (1, 0, 5, 9, 0, 0) and taps[40:] == text("audit")
    stranger.ask("FACTS_CLOSE", named("audit"))
    for act in (lambda: read(stranger, "audit"), lambda: stranger.ask("FACTS_CLOSE", named("audit"))):
        refused("NO_SUCH_TAP", act)


def test_what_makes_no_sense_is_refused(inside: Inside) -> None:
    stranger = inside.stranger()
    opened(stranger, "audit")
    refused("LIMIT_EXCEEDED", lambda: read(stranger, "audit", most=0))
    refused("LIMIT_EXCEEDED", lambda: opened(stranger, ""))
    refused("LIMIT_EXCEEDED", lambda: opened(stranger, "x" * 129))
    refused("LIMIT_EXCEEDED", lambda: opened(stranger, "x", age=2**63))
    refused("MALFORMED", lambda: stranger.ask("FACTS_OPEN", b"short"))
    stranger.ask("PING")


def test_facts_are_the_business_of_a_namespaces_owner_and_opening_is_noted(tmp_path: Path) -> None:
    signed = Signed(tmp_path, audit=str(tmp_path / "audit.log"))
    try:
        mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
        space = f"{signed.shop}/us-east-1"
        opened(mine, "audit", space)
        for kind, head in (("OPEN", struct.pack("<QQQ", 0, 0, 0)), ("LIST", b""), ("READ", struct.pack("<QII", 0, 1, 0)), ("CLOSE", b"")):
            refused("ACCESS_DENIED", lambda kind=kind, head=head: theirs.ask(f"FACTS_{kind}", head + named("audit", space)))
        opened(theirs, "audit")
        mine.declare("orders")
        assert read(mine, "audit")[2]["queue"].to_pylist() == ["orders"]
        assert read(theirs, "audit")[2].num_rows == 0, "what happens elsewhere is nobody else's business"
        mine.ask("FACTS_CLOSE", named("audit"))
    finally:
        signed.inside.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    noted = [(one["action"], one["account"]) for one in lines if "Facts" in one["action"]]
    assert noted == [("OpenFactsTap", signed.shop), ("OpenFactsTap", signed.other), ("CloseFactsTap", signed.shop)]
