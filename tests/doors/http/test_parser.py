"""The parser is bytes in, events out: however the bytes are cut it gives the same events, and no bytes make it raise or hoard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.doors.http.bounds import Bounds
from dovetail.doors.http.message import Request
from dovetail.doors.http.parser import ENDED, IDLE, Continue, Event, Failure, Parser

SMALL = Bounds(target_bytes_max=64, headers_max=5, header_bytes_max=256, body_bytes_max=32)

STREAM = (
    b"GET /one?a=b HTTP/1.1\r\nHost: x\r\n\r\n"
    b"\r\nPOST /two HTTP/1.1\r\nhost: x\r\nContent-Length: 5\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello"
    b"POST /three HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
    b"GET /four HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    b"POST /five HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
    b"HEAD /six HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n"
)


def told(events: list[Event]) -> list[object]:
    return [(e.method, e.target, dict(e.headers), e.body, e.keep_alive) if isinstance(e, Request) else e for e in events]


WHOLE = told(Parser(Bounds()).feed(STREAM))


def test_requests_come_out_whole_in_order_and_nothing_after_a_close() -> None:
    assert [e[:2] if isinstance(e, tuple) and len(e) == 5 else e for e in WHOLE] == [
        ("GET", b"/one?a=b"),
        ("POST", b"/two"),
        Continue(),
        ("POST", b"/three"),
        ("GET", b"/four"),
        ("POST", b"/five"),
        ("HEAD", b"/six"),
    ]
    assert WHOLE[1][2][b"x-a"] == b"1, 2"  # type: ignore[index]
    assert WHOLE[1][3] == b"hello" and WHOLE[3][3] == b"abcde" and WHOLE[5][3] == b"hi"  # type: ignore[index]
    assert b"trailer" not in WHOLE[3][2]  # type: ignore[index]


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_the_same_events_come_out_when_the_bytes_are_split_anywhere(cut: int) -> None:
    parser = Parser(Bounds())
    assert told(parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:])) == WHOLE


def test_the_same_events_come_out_one_byte_at_a_time() -> None:
    parser = Parser(Bounds())
    assert told([event for i in range(len(STREAM)) for event in parser.feed(STREAM[i : i + 1])]) == WHOLE


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n21\r\n" + b"a" * 33, 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\n\r\n", 411),
        (b"GET /" + b"a" * 64 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 256 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 6 + b"\r\n", 431),
        (b"FETCH / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: wonders\r\n\r\n", 417),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ],
)
def test_what_is_not_a_request_that_we_take_is_refused_by_its_status_and_ends_the_parser(data: bytes, status: int) -> None:
    parser = Parser(SMALL)
    [failure] = parser.feed(data)
    assert isinstance(failure, Failure) and failure.status == status and failure.text
    assert parser.phase == ENDED
    assert parser.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == []


def test_a_request_with_length_and_chunks_at_once_is_refused() -> None:
    parser = Parser(SMALL)
    [failure] = parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert isinstance(failure, Failure) and failure.status in (400, 501)


@pytest.mark.parametrize(
    ("start", "more", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: ", b"a" * 10, 431),
        (b"GET / HTTP/1.1\r\n", b"X", 431),
        (b"GET /", b"a" * 10, 414),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 100 + b"\r\na\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: ", b"a" * 10, 413),
    ],
)
def test_something_that_never_ends_is_cut_off(start: bytes, more: bytes, status: int) -> None:
    parser = Parser(SMALL)
    events = parser.feed(start)
    for _ in range(1000):
        events += parser.feed(more)
    assert [event.status for event in events if isinstance(event, Failure)] == [status]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_never_raises_and_fails_once_at_most(pieces: list[bytes]) -> None:
    parser = Parser(SMALL)
    events = [event for piece in pieces for event in parser.feed(piece)]
    assert sum(isinstance(event, Failure) for event in events) <= 1


def test_a_refusal_behind_an_offer_to_upgrade_is_a_refusal() -> None:
    offer = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    events = Parser(SMALL).feed(offer + b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 999\r\n\r\n")
    assert [type(event) for event in events] == [Request, Failure]
    assert isinstance(events[1], Failure) and events[1].status == 413


@given(st.data())
def test_a_damaged_stream_never_raises_and_keeps_every_bound(data: st.DataObject) -> None:
    stream = bytearray(STREAM)
    for _ in range(data.draw(st.integers(1, 6))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(stream)))
    parser = Parser(SMALL)
    for event in parser.feed(bytes(stream[:cut])) + parser.feed(bytes(stream[cut:])):
        if isinstance(event, Request):
            assert len(event.body) <= 32 and len(event.target) <= 64 and len(event.headers) <= 5
    assert parser.phase in (IDLE, 1, 2, ENDED)
