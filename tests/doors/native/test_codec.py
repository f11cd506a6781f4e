"""The codec takes any bytes: they give events and values, or a protocol error, and cost no more memory than was given."""

from __future__ import annotations

import tracemalloc
from array import array
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.column import Column
from dovetail.doors.native import answers, requests
from dovetail.doors.native.codec import Broken, Code, Frame, Hello, Item, Kind, Reader, hello, raised
from dovetail.doors.native.frames import HEADER, encode
from dovetail.doors.native.refusals import CLASSES
from dovetail.doors.native.refusals import answer as told
from dovetail.errors import CodecError, TapCut, Throttled

ITEMS = [Item(5, 9, 10, 0, 3, b"12345678"), Item(50, 90, 1, 0, 1, b"87654321")]
REQUESTS: list[requests.Request] = [
    requests.Auth("AKIA", b"n" * 32, b"p" * 32),
    requests.Ping(),
    requests.Open("orders", "111111111111/eu"),
    requests.Declare("orders", {"lease_ms": 5, "grouped": True, "extra": {"a": "ö"}}),
    requests.Configure(3, {"delay_ms": 1, "grouped": False}),
    requests.About(Kind.DROP, 4),
    requests.List("a", "b", 5, "c"),
    requests.About(Kind.NAME, 4),
    requests.Push(b"a record"),
    requests.Pull(1, 5, 60, 7, 8, True, b"attempt"),
    requests.Consume(1, 10, 1000, 7, 5, True),
    requests.Credit(4, 5, 6),
    requests.Stop(8),
    *(requests.Settle(kind, 1, ITEMS) for kind in (Kind.COMPLETE, Kind.RELEASE)),
    *(requests.Settle(kind, 1, ITEMS, -1) for kind in (Kind.REQUEUE, Kind.EXTEND)),
    requests.CompletePull(1, ITEMS, 4, 5, 6, 7),
    requests.CompletePush(1, ITEMS, b"a record"),
    *(requests.BySequence(kind, 1, [1, 2, 2**63]) for kind in (Kind.CANCEL, Kind.RECLAIM)),
    requests.BySequence(Kind.RESCHEDULE, 1, [4], 5),
    *(requests.About(kind, 2**64 - 1) for kind in (Kind.PURGE, Kind.COUNTS, Kind.REDRIVE_STATUS, Kind.REDRIVE_CANCEL, Kind.TAP_LIST)),
    requests.About(Kind.RESERVE_LIST, 3),
    requests.Peek(1, 2, 3, 4),
    requests.Redrive(1, 2, 3),
    requests.Producer(b"i" * 16),
    requests.Skip(b"i" * 16, 1, 2),
    requests.TapOpen(1, "täp", 0, 5, 6),
    requests.TapRead(1, "tap", 4, 5, 6, True),
    requests.TapAdvance(1, "tap", 4),
    requests.TapClose(1, "tap"),
    requests.Stage(b"s" * 16, b"a record", 7),
    requests.Publish([b"s" * 16, b"t" * 16], b"o" * 16, 2**63 - 1),
    requests.Publish([], b"o" * 16, -1),
    requests.Unstage([b"s" * 16], True),
    requests.Stages(b"a" * 16, 5),
    *(requests.Reservation(kind, 1, "jöb") for kind in (Kind.RESERVE_OPEN, Kind.RESERVE_RELEASE, Kind.RESERVE_CLOSE)),
    requests.Reserve(1, "job", 2, 3, 4),
    requests.ReserveRead(1, "job", 2, 3, 4, 5, True),
    requests.FactsOpen("täp", 2**64 - 1, 5, 6, "eu"),
    requests.FactsRead("tap", 7, 8),
    requests.FactsAdvance("tap", 9, "eu"),
    *(requests.FactsAbout(kind, "t", "eu") for kind in (Kind.FACTS_LIST, Kind.FACTS_CLOSE)),
    requests.ReserveSettle(1, "job", 2, -3),
]
COLUMN = Column.of([b"a", b"", b"bcd"])
RUNS = [answers.Run(1, 2, 2, 1, 5, 6, 7, 0, b"s" * 8), answers.Run(9, 8, 1, 3, 5, 6, 7, 4, b"t" * 8)]
ANSWERS: list[answers.Answer] = [
    answers.Hello(1, 1, b"n" * 32),
    answers.Welcome(b"p" * 32, b"s" * 16, 1, 2, 3, 4, 5, 6, 7, 8, "a", "n", "disk", "nm", "v", ["h:1", "h:2"]),
    answers.Error(Code.TAP_CUT, "cut", True, 2, 3),
    answers.Bye(4, "the node stops"),
    answers.Pong(4),
    answers.Done(3),
    answers.Opened(4, {"lease_ms": 3, "extra": {"a": "b"}}),
    answers.Queues([("a", 1), ("b", 2)], True),
    answers.Named("a", "b"),
    answers.Pushed(2, [answers.Lane(range(4, 7)), answers.Lane([1, 2], b"\0\1"), answers.Lane([1, 2], b"\0\1", b"i" * 32)]),
    answers.Deliveries(1, RUNS, COLUMN, b"i" * 48, COLUMN, COLUMN),
    answers.Deliveries(1, [], Column.of([])),
    answers.Settled(b"\1\0"),
    answers.Counted(*range(8)),
    answers.Messages(1, 2, 3, [4, 5, 6], [7, 8, 9], COLUMN, None, COLUMN, None, [1, 2, 3], b"\0\2\1"),
    answers.Messages(1, 2, 3, [4, 5, 6], [7, 8, 9], COLUMN, b"i" * 48, None, COLUMN),
    answers.Arrow(1, 2, 3, 4, b"a stream"),
    answers.Redriving(2, 5),
    answers.Producing(b"i" * 16, 1, 2),
    answers.Taps([answers.Tap("t", 1, 2, 3, 4)]),
    answers.Published(2, [answers.Joined(1, 2, 3, 4), answers.Joined(5, 6, 7, 8)], True),
    answers.Staged([answers.OpenStage(b"s" * 16, 1, 2, 3)], True),
    answers.Reserving(4, -1),
    answers.Reserved(100_000, True),
    answers.Reservations([answers.Reservation("jöb", 1, 7, -1, {6: 2, 7: 0}), answers.Reservation("", 0, -1, -1, {})]),
]


def plain(value: Any) -> Any:
    """Views and columns as what they hold."""
    if isinstance(value, Column):
        return list(value)
    if isinstance(value, memoryview | bytes | range | array):
        return list(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value), *map(plain, value))
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def test_every_kind_has_an_example_here() -> None:
    shown = {encoded[4] for encoded in map(lambda one: requests.encode(one, 1), REQUESTS)}  # noqa: C417
    assert shown == set(requests.DECODERS) == {kind for kind in Kind if kind < 128}
    assert {answers.encode(one, 1)[4] for one in ANSWERS} == set(answers.DECODERS) == {kind for kind in Kind if kind >= 128}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_comes_out_as_it_went_in(request_: requests.Request) -> None:
    (frame,) = Reader().feed(requests.encode(request_, 7))
    assert isinstance(frame, Frame) and frame.number == 7
    assert plain(requests.decode(frame)) == plain(request_)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: type(one).__name__)
def test_an_answer_comes_out_as_it_went_in(answer: answers.Answer) -> None:
    (frame,) = Reader().feed(answers.encode(answer, 7))
    assert isinstance(frame, Frame) and frame.number == 7
    assert plain(answers.decode(frame)) == plain(answer)


@given(st.data())
def test_frames_that_come_in_pieces_are_the_same_frames(data: st.DataObject) -> None:
    whole = hello(1, 3) + b"".join(requests.encode(one, number + 1) for number, one in enumerate(REQUESTS))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=40)))
    reader, events = Reader(hello=True), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        events += reader.feed(whole[start:end])
    assert events[0] == Hello(1, 3) and len(events) == 1 + len(REQUESTS) and reader.empty
    found = [requests.decode(event) for event in events[1:] if isinstance(event, Frame)]
    assert [plain(one) for one in found] == [plain(one) for one in REQUESTS]


def tried(data: bytes, *, greets: bool = False) -> None:
    """Both sides read these bytes, and raise nothing but protocol errors."""
    reader = Reader(hello=greets, payload_max=1 << 20)
    events = reader.feed(data)
    for event in events[:-1]:
        assert not isinstance(event, Broken)
    if events and isinstance(events[-1], Broken):
        assert reader.feed(data) == []
    for event in events:
        if isinstance(event, Frame):
            for decode in (requests.decode, answers.decode):
                try:
                    decode(event)  # type: ignore[operator]  # one of two functions
                except CodecError:
                    pass


def mangled(random: Random, frame: bytes) -> bytes:
    """A frame that was well once: bytes of its payload changed, cut, put in; another kind; the header left true."""
    kind, flags, payload = frame[4], frame[5], bytearray(frame[16:])
    for _ in range(random.randint(1, 4)):
        act = random.randrange(5)
        at = random.randrange(len(payload) + 1)
        if act == 0 and payload:
            payload[at % len(payload)] = random.choice((0, 1, 127, 255, random.randrange(256)))
        elif act == 1:
            del payload[at:]
        elif act == 2:
            payload[at:at] = random.randbytes(random.randint(1, 9))
        elif act == 3:
            kind = random.choice(list(Kind))
        else:
            flags = random.randrange(16)
    return encode(kind, random.randrange(1 << 64), bytes(payload), flags)


WELL = [requests.encode(one, 1) for one in REQUESTS] + [answers.encode(one, 1) for one in ANSWERS]


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=500)
def test_any_bytes_give_events_or_an_end(data: bytes, greets: bool) -> None:
    tried(data, greets=greets)


@given(st.sampled_from([int(kind) for kind in Kind] + [0, 77, 255]), st.integers(0, 255), st.binary(max_size=400))
@settings(max_examples=1000)
def test_any_payload_gives_a_value_or_a_protocol_error(kind: int, flags: int, payload: bytes) -> None:
    tried(encode(kind, 1, payload, flags))


@given(st.integers(0, 1 << 32))
@settings(max_examples=1000)
def test_a_frame_that_was_well_once_gives_a_value_or_a_protocol_error(seed: int) -> None:
    random = Random(seed)
    tried(mangled(random, random.choice(WELL)))


@pytest.mark.slow
def test_a_million_random_frames_raise_nothing_but_protocol_errors() -> None:
    random = Random(5)
    for _ in range(1_000_000):
        if random.random() < 0.6:
            tried(mangled(random, random.choice(WELL)))
        else:
            tried(encode(random.choice(list(Kind)), 1, random.randbytes(random.randrange(200)), random.randrange(256)))


def test_a_frame_that_claims_to_be_large_costs_what_has_come_of_it() -> None:
    reader = Reader(payload_max=16 << 20)
    tracemalloc.start()
    reader.feed(HEADER.pack(16 << 20, Kind.PUSH, 0, 0, 1))
    for _ in range(20_000):
        reader.feed(b"x")
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 200_000


@pytest.mark.parametrize(
    "payload",
    [
        (Kind.DELIVERIES, b"\0" * 8 + b"\xff\xff\xff\xff" * 2),
        (Kind.MESSAGES, b"\0" * 24 + b"\xff\xff\xff\xff" + b"\0" * 4),
        (Kind.PUSHED, b"\1\0\0\0\xff\xff\xff\xff"),
        (Kind.PUSHED, b"\1\0\0\0\1\0\0\0" + b"\0" * 8 + b"\xff\xff\xff\xff\1\0\0\0"),
        (Kind.QUEUES, b"\xff\xff\xff\xff\0\0\0\0"),
        (Kind.TAPS, b"\xff\xff\xff\xff\0\0\0\0"),
        (Kind.OPENED, b"\0" * 8 + b"\xff\xff\xff\xff\0\0\0\0"),
        (Kind.COMPLETE_PUSH, b"\0" * 8 + b"\xff\xff\xff\xff\0\0\0\0"),
    ],
)
def test_a_payload_that_claims_to_hold_much_costs_what_it_holds(payload: tuple[Kind, bytes]) -> None:
    kind, data = payload
    (frame,) = Reader().feed(encode(kind, 1, data))
    assert isinstance(frame, Frame)
    tracemalloc.start()
    with pytest.raises(CodecError):
        (requests if kind < 128 else answers).decode(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_every_error_comes_out_as_the_class_it_was() -> None:
    for code, made in CLASSES.items():
        error = raised(told(made("so it is")))
        assert type(error) is made and str(error) == "so it is", code
    cut = raised(told(TapCut("cut", lost_first=5, lost_count=7)))
    assert isinstance(cut, TapCut) and (cut.lost_first, cut.lost_count) == (5, 7)
    slow = raised(told(Throttled("slow down", quota="requests_per_s", retry_after_ms=40)))
    assert isinstance(slow, Throttled) and slow.retry_after_ms == 40


def test_a_fault_of_ours_tells_nothing_of_the_inside() -> None:
    answer = told(ZeroDivisionError("secret detail"))
    assert (answer.code, answer.unknown) == (Code.UNKNOWN, True) and "secret" not in answer.text


def test_a_code_of_a_later_version_still_says_whether_it_may_have_happened() -> None:
    assert type(raised(answers.Error(999, "new", True))).__name__ == "Unknown"
    assert type(raised(answers.Error(999, "new", False))).__name__ == "Refused"
