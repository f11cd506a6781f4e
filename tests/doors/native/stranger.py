"""A client of the native protocol written from docs/protocol.md and nothing else. It imports nothing of Dovetail: where this and the page
disagree with the node, one of the three is wrong.

Blocking, one socket, no cleverness. Requests can be sent without waiting (`send`), and answers taken as they come (`take`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

PATIENCE_S = 120.0
"""What only a broken promise takes, on a machine however slow."""
HEADER = struct.Struct("<IBBHQ")
RUN = struct.Struct("<QQIIQQQQ8s")
ITEM = struct.Struct("<QQIIII8s")
KINDS = {
    "AUTH": 1, "PING": 2, "OPEN": 8, "DECLARE": 9, "CONFIGURE": 10, "DROP": 11, "LIST": 12, "NAME": 13, "PUSH": 16, "PULL": 17,
    "CONSUME": 18, "CREDIT": 19, "STOP": 20, "COMPLETE": 24, "REQUEUE": 25, "EXTEND": 26, "RELEASE": 27, "COMPLETE_PULL": 28,
    "COMPLETE_PUSH": 29, "CANCEL": 32, "RESCHEDULE": 33, "RECLAIM": 34, "PURGE": 36, "COUNTS": 37, "PEEK": 38, "REDRIVE": 40,
    "REDRIVE_STATUS": 41, "REDRIVE_CANCEL": 42, "PRODUCER": 44, "SKIP": 45, "TAP_OPEN": 48, "TAP_LIST": 49, "TAP_READ": 50,
    "TAP_ADVANCE": 51, "TAP_CLOSE": 52, "STAGE": 56, "PUBLISH": 57, "RESERVE": 58, "RESERVE_SETTLE": 59, "UNSTAGE": 60,
    "STAGES": 61, "RESERVE_OPEN": 62, "RESERVE_READ": 63, "RESERVE_RELEASE": 64, "RESERVE_CLOSE": 65, "RESERVE_LIST": 66,
    "FACTS_OPEN": 67, "FACTS_LIST": 68, "FACTS_READ": 69, "FACTS_ADVANCE": 70, "FACTS_CLOSE": 71,
    "HELLO": 128, "WELCOME": 129,
    "ERROR": 130, "BYE": 131, "PONG": 132, "DONE": 133, "OPENED": 134, "QUEUES": 135, "NAMED": 136, "PUSHED": 137, "DELIVERIES": 138,
    "SETTLED": 139, "COUNTED": 140, "MESSAGES": 141, "ARROW": 142, "REDRIVING": 143, "PRODUCING": 144, "TAPS": 145, "PUBLISHED": 146,
    "STAGED": 147, "RESERVING": 148, "RESERVED": 149, "RESERVATIONS": 150,
}  # fmt: skip
NAMES = {number: name for name, number in KINDS.items()}
CODES = {
    1: "ERROR", 2: "REFUSED", 3: "BAD_REQUEST", 4: "LIMIT_EXCEEDED", 5: "NO_SUCH_QUEUE", 6: "QUEUE_EXISTS", 7: "NO_SUCH_TAP", 8: "TAP_CUT",
    9: "RECEIPT_INVALID", 10: "NUMBER_REFUSED", 11: "UNAVAILABLE", 12: "STORAGE_FULL", 13: "OVER_IN_FLIGHT", 14: "OVER_QUOTA",
    15: "THROTTLED", 16: "CLOSED", 17: "UNKNOWN", 18: "STORAGE_ERROR", 19: "DAMAGED", 20: "FOLDER_LOCKED", 21: "FORMAT_UNKNOWN",
    22: "CODEC_ERROR", 23: "NO_SUCH_STAGE", 24: "NO_SUCH_RESERVATION", 25: "FENCED", 26: "BATCH_REFUSED",
    64: "PROTOCOL", 65: "MALFORMED", 66: "NO_SUCH_KIND", 67: "ACCESS_DENIED", 68: "NOT_YET", 69: "NOT_OPENED",
    70: "NO_ARROW",
}  # fmt: skip
RULES = {
    "lease_ms": 1, "lease_max_ms": 2, "delay_ms": 3, "retention_ms": 4, "receives_max": 5, "dead_letter": 6, "dedup_ms": 7, "grouped": 8,
    "in_flight_max": 9, "backoff_ms": 10, "backoff_max_ms": 11,
}  # fmt: skip
MIX = (0x2C6FE96EE78B6955D9E2D43C6A5BB1D % 2**122) | 1


class Refused(Exception):
    def __init__(self, code: str, text: str, unknown: bool, first: int, second: int) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.unknown, self.first, self.second = code, text, unknown, first, second


class Answer(NamedTuple):
    kind: str
    number: int
    flags: int
    payload: bytes


class Message(NamedTuple):
    """One message of a delivery, and how to name it: its run and where in it."""

    body: bytes
    group: bytes
    attributes: bytes
    own_id: bytes
    sequence: int
    receives: int
    pushed_ms: int
    lease_until_ms: int
    source: int
    run: tuple[int, int, int, bytes]
    at: int


class Welcome(NamedTuple):
    proof: bytes
    salt: bytes
    now_ms: int
    request_bytes: int
    record_bytes: int
    messages: int
    in_flight: int
    waits: int
    idle_ms: int
    features: int
    account: str
    namespace: str
    durability: str
    name: str
    version: str
    addresses: list[str]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<H", len(data)) + data


def column(strings: Sequence[bytes]) -> bytes:
    offsets = [0]
    for one in strings:
        offsets.append(offsets[-1] + len(one))
    return struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(strings) + bytes(-offsets[-1] % 4)


def rules(given: dict[str, Any]) -> bytes:
    extra = given.get("extra", {})
    named = [(RULES[name], int(value)) for name, value in given.items() if name != "extra"]
    data = struct.pack("<HHI", len(named), len(extra), 0) + b"".join(struct.pack("<IIQ", number, 0, value) for number, value in named)
    return data + b"".join(text(part) for pair in extra.items() for part in pair)


def record(
    queues: Sequence[int],
    bodies: Sequence[bytes],
    *,
    number: tuple[bytes, int, int] | None = None,
    delay_ms: int | None = None,
    delays: Sequence[int] | None = None,
    dedups: Sequence[bytes] | None = None,
    ids: Sequence[bytes] | None = None,
    groups: Sequence[bytes] | None = None,
    attributes: Sequence[bytes] | None = None,
) -> bytes:
    flags = 0
    sections = b""
    if number is not None:
        flags |= 1
        sections += struct.pack("<16sQQ", *number)
    if delay_ms is not None:
        flags |= 2
        sections += struct.pack("<Q", delay_ms)
    if delays is not None:
        flags |= 4
        sections += struct.pack(f"<{len(delays)}Q", *delays)
    if dedups is not None:
        flags |= 8
        sections += b"".join(dedups)
    if ids is not None:
        flags |= 16
        sections += b"".join(ids)
    if groups is not None:
        flags |= 32
        sections += column(groups)
    if attributes is not None:
        flags |= 64
        sections += column(attributes)
    head = struct.pack("<BBHI", 16, flags, len(queues), len(bodies)) + struct.pack(f"<{len(queues)}Q", *queues)
    return head + sections + column(bodies)


def attribute_bytes(given: dict[str, tuple[str, bytes]]) -> bytes:
    data = struct.pack("<H", len(given))
    for name, (kind, value) in given.items():
        data += struct.pack("<HHI", len(name), len(kind), len(value)) + name.encode() + kind.encode() + value
    return data


def items(messages: Sequence[Message]) -> bytes:
    """Neighbours of one run become one item."""
    found: list[list[Any]] = []
    for one in messages:
        if found and found[-1][0] == one.run and found[-1][2] == one.at:
            found[-1][2] += 1
        else:
            found.append([one.run, one.at, one.at + 1])
    return b"".join(ITEM.pack(run[0], run[1], run[2], start, end, 0, run[3]) for run, start, end in found)


def id_of(queue: int, sequence: int, salt: bytes) -> bytes:
    x = (((queue << 64) + sequence) ^ int.from_bytes(salt, "big")) * MIX % 2**122
    y = (x ^ (x >> 61)) * MIX % 2**122
    high, middle, low = y >> 74, (y >> 62) % 2**12, y % 2**62
    return ((high << 80) | (0b1000 << 76) | (middle << 64) | (0b10 << 62) | low).to_bytes(16, "big")


class Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def fixed(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def bytes(self, size: int) -> bytes:
        assert self.at + size <= len(self.data)
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def text(self) -> str:
        return self.bytes(self.fixed("H")[0]).decode()

    def column(self, count: int) -> list[bytes]:
        offsets = self.fixed(f"{count + 1}I")
        assert offsets[0] == 0
        blob = self.bytes(offsets[-1])
        self.bytes(-offsets[-1] % 4)
        return [blob[start:end] for start, end in pairwise(offsets)]

    def columns(self, count: int, flags: int) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
        """(ids, groups, attributes, bodies)"""
        ids = [self.bytes(16) for _ in range(count)] if flags & 1 else [bytes(16)] * count
        groups = self.column(count) if flags & 2 else [b""] * count
        attributes = self.column(count) if flags & 4 else [b""] * count
        return ids, groups, attributes, self.column(count)

    def end(self) -> None:
        assert self.at == len(self.data), "bytes behind the payload"


class Stranger:
    def __init__(self, port: int, key: str = "", secret: str = "", token: str = "", *, sock: socket.socket | None = None) -> None:
        self.socket = sock or socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.settimeout(PATIENCE_S)
        self.number = 0
        self._data = b""
        self._kept: dict[int, list[Answer]] = {}
        self.socket.sendall(struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0))
        hello = self._read()
        assert (hello.kind, hello.number) == ("HELLO", 0), hello
        self.spoken, self.auth, zero, self.node_nonce = struct.unpack("<HHI32s", hello.payload)
        assert self.spoken == 1 and zero == 0
        self.nonce, proof = os.urandom(32), bytes(32)
        if self.auth:
            said = b"dovetail-native-1" + self.node_nonce + self.nonce + key.encode() + (b"\0" + token.encode() if token else b"")
            proof = hmac.new(secret.encode(), said, hashlib.sha256).digest()
        self.welcome = self._welcome(self.ask("AUTH", self.nonce + proof + key.encode()).payload, secret)

    def _welcome(self, payload: bytes, secret: str) -> Welcome:
        reader = Reader(payload)
        fixed = reader.fixed("32s16sQ8I")
        assert fixed[-1] == 0
        texts = [reader.text() for _ in range(5)]
        addresses = [reader.text() for _ in range(reader.fixed("H")[0])]
        reader.end()
        wanted = hmac.new(secret.encode(), b"dovetail-native-1 node" + self.nonce + self.node_nonce, hashlib.sha256).digest()
        assert fixed[0] == (wanted if self.auth else bytes(32)), "this node does not know the secret"
        return Welcome(*fixed[:-1], *texts, addresses)

    # Frames

    def send(self, kind: str, payload: bytes = b"", flags: int = 0) -> int:
        self.number += 1
        self.socket.sendall(HEADER.pack(len(payload), KINDS[kind], flags, 0, self.number) + payload)
        return self.number

    def send_at_once(self, kind: str, payloads: list[bytes]) -> None:
        """In one write: the node has all of them before it answers one."""
        frames = b""
        for payload in payloads:
            self.number += 1
            frames += HEADER.pack(len(payload), KINDS[kind], 0, 0, self.number) + payload
        self.socket.sendall(frames)

    def take(self) -> Answer:
        """The next answer, whatever it answers."""
        for number, kept in list(self._kept.items()):
            answer = kept.pop(0)
            if not kept:
                del self._kept[number]
            return answer
        return self._read()

    def answer(self, number: int) -> Answer:
        """The next answer with this number; errors are raised."""
        while number not in self._kept:
            read = self._read()
            self._kept.setdefault(read.number, []).append(read)
        kept = self._kept[number]
        answer = kept.pop(0)
        if not kept:
            del self._kept[number]
        if answer.kind == "ERROR":
            raise self.error(answer.payload)
        return answer

    def ask(self, kind: str, payload: bytes = b"", flags: int = 0) -> Answer:
        return self.answer(self.send(kind, payload, flags))

    @staticmethod
    def error(payload: bytes) -> Refused:
        code, unknown, zero, zeros, first, second = struct.unpack_from("<HBBIQQ", payload)
        assert zero == zeros == 0
        return Refused(CODES[code], payload[24:].decode(), bool(unknown), first, second)

    def _read(self) -> Answer:
        head = self._exactly(16)
        size, kind, flags, zero, number = HEADER.unpack(head)
        assert zero == 0 and size <= 16_842_752
        return Answer(NAMES[kind], number, flags, self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the node closed the connection")
            self._data += data
        data, self._data = self._data[:size], self._data[size:]
        return data

    def take_nothing(self, wait_s: float = 0.05) -> bool:
        """Nothing more has come, and nothing comes for a moment."""
        if self._kept or self._data:
            return False
        self.socket.settimeout(wait_s)
        try:
            self._data = self.socket.recv(1 << 20)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return False

    def closed(self) -> bool:
        """The node closed the connection, and said nothing more."""
        try:
            return not self._data and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    # Queues

    def declare(self, name: str, namespace: str = "", **given: Any) -> int:
        return self.opened(self.ask("DECLARE", text(namespace) + text(name) + rules(given)))[0]

    def open(self, name: str, namespace: str = "") -> int:
        return self.opened(self.ask("OPEN", text(namespace) + text(name)))[0]

    @staticmethod
    def opened(answer: Answer) -> tuple[int, dict[str, Any]]:
        assert answer.kind == "OPENED"
        reader = Reader(answer.payload)
        (queue,) = reader.fixed("Q")
        count, extras, zero = reader.fixed("HHI")
        names = {number: name for name, number in RULES.items()}
        given: dict[str, Any] = {}
        for _ in range(count):
            number, empty, value = reader.fixed("IIQ")
            assert empty == 0
            given[names[number]] = value
        given["extra"] = {reader.text(): reader.text() for _ in range(extras)}
        reader.end()
        assert zero == 0
        return queue, given

    def counts(self, queue: int) -> dict[str, int]:
        values = struct.unpack("<8Q", self.ask("COUNTS", struct.pack("<Q", queue)).payload)
        names = ("visible", "delayed", "leased", "oldest_age_ms", "pushed", "dead_lettered", "stranded", "reserved")
        return dict(zip(names, values, strict=True))

    def done(self, answer: Answer) -> int:
        assert answer.kind == "DONE"
        (value,) = struct.unpack("<Q", answer.payload)
        return int(value)

    # Messages

    def push(self, data: bytes) -> list[tuple[list[int], list[int], list[bytes]]]:
        return self.pushed(self.ask("PUSH", data))

    @staticmethod
    def pushed(answer: Answer) -> list[tuple[list[int], list[int], list[bytes]]]:
        """For each queue (sequences, verdicts, ids)."""
        assert answer.kind == "PUSHED"
        reader = Reader(answer.payload)
        durability, zero, zeros, queues = reader.fixed("BBHI")
        assert durability in (1, 2, 3, 4) and zero == zeros == 0
        found = []
        for _ in range(queues):
            first, count, form = reader.fixed("QII")
            if form == 0:
                found.append((list(range(first, first + count)), [0] * count, [bytes(16)] * count))
                continue
            sequences = list(reader.fixed(f"{count}Q"))
            ids = [reader.bytes(16) for _ in range(count)] if form == 3 else [bytes(16)] * count
            verdicts = list(reader.bytes(count))
            reader.bytes(-count % 8)
            found.append((sequences, verdicts, ids))
        reader.end()
        return found

    @staticmethod
    def pull_bytes(queue: int, most: int = 1, wait_ms: int = 0, lease_ms: int = -1, bytes_max: int = 0, attempt: bytes = b"") -> bytes:
        return struct.pack("<QqIIII", queue, lease_ms, most, bytes_max, wait_ms, 0) + attempt

    def pull(self, queue: int, most: int = 1, *, delete: bool = False, **given: Any) -> list[Message]:
        return self.deliveries(self.ask("PULL", self.pull_bytes(queue, most, **given), int(delete)))

    @staticmethod
    def deliveries(answer: Answer) -> list[Message]:
        assert answer.kind == "DELIVERIES", answer
        reader = Reader(answer.payload)
        _, count, run_count = reader.fixed("QII")
        runs = [RUN.unpack(reader.bytes(64)) for _ in range(run_count)]
        assert sum(run[2] for run in runs) == count
        ids, groups, attributes, bodies = reader.columns(count, answer.flags)
        reader.end()
        found = []
        for sequence, delivery, length, receives, pushed_ms, _, until, source, seal in runs:
            run = (sequence, delivery, length, seal)
            for at in range(length):
                i = len(found)
                told = (bodies[i], groups[i], attributes[i], ids[i], sequence + at, receives, pushed_ms, until, source, run, at)
                found.append(Message(*told))
        return found

    def settle(self, kind: str, queue: int, messages: Sequence[Message], parameter: int = 0) -> list[bool]:
        answer = self.ask(kind, struct.pack("<Qq", queue, parameter) + items(messages))
        assert answer.kind == "SETTLED" and len(answer.payload) == len(messages)
        return [bool(one) for one in answer.payload]

    def complete(self, queue: int, messages: Sequence[Message]) -> list[bool]:
        return self.settle("COMPLETE", queue, messages)

    def consume(self, queue: int, messages: int, size: int = 1 << 30, *, frame: int = 100, lease_ms: int = -1, delete: bool = False) -> int:
        return self.send("CONSUME", struct.pack("<QqQII", queue, lease_ms, size, messages, frame), int(delete))

    def credit(self, consume: int, messages: int, size: int = 0) -> None:
        self.send("CREDIT", struct.pack("<QQII", consume, size, messages, 0))

    def stop(self, target: int) -> int:
        return self.done(self.ask("STOP", struct.pack("<Q", target)))

    def by_sequence(self, kind: str, queue: int, sequences: Sequence[int], parameter: int = 0) -> list[bool]:
        answer = self.ask(kind, struct.pack("<Qq", queue, parameter) + struct.pack(f"<{len(sequences)}Q", *sequences))
        return [bool(one) for one in answer.payload]

    # Looking and taps

    def messages(self, answer: Answer) -> tuple[int, int, list[dict[str, Any]]]:
        """(next, end, messages)"""
        assert answer.kind == "MESSAGES"
        reader = Reader(answer.payload)
        _, following, end, count, zero = reader.fixed("QQQII")
        assert zero == 0
        sequences, times = reader.fixed(f"{count}Q"), reader.fixed(f"{count}Q")
        receives: Sequence[int] = [0] * count
        states = bytes(count)
        if answer.flags & 8:
            receives, states = reader.fixed(f"{count}I"), reader.bytes(count)
            reader.bytes(-count % 4)
        ids, groups, attributes, bodies = reader.columns(count, answer.flags)
        reader.end()
        names = ("sequence", "time", "receives", "state", "id", "group", "attributes", "body")
        rows = zip(sequences, times, receives, states, ids, groups, attributes, bodies, strict=True)
        return following, end, [dict(zip(names, row, strict=True)) for row in rows]

    def peek(self, queue: int, most: int = 100, after: int = 0, bytes_max: int = 0) -> tuple[int, int, list[dict[str, Any]]]:
        return self.messages(self.ask("PEEK", struct.pack("<QQII", queue, after, most, bytes_max)))

    @staticmethod
    def tap_bytes(queue: int, name: str, start: int = 2**64 - 1, most: int = 1000, bytes_max: int = 0) -> bytes:
        return struct.pack("<QQII", queue, start, most, bytes_max) + name.encode()

    def tap_open(self, queue: int, name: str, start: int = 0, age_ms: int = 1 << 40, size: int = 1 << 40) -> int:
        return self.done(self.ask("TAP_OPEN", struct.pack("<QQQQ", queue, start, age_ms, size) + name.encode()))

    # Stages

    def stage(self, name: bytes, data: bytes, number: int = 0) -> int:
        return self.done(self.ask("STAGE", struct.pack("<16sII", name, number, 0) + data))

    @staticmethod
    def names(names: Sequence[bytes]) -> bytes:
        return struct.pack("<II", len(names), 0) + b"".join(names)

    def publish(self, names: Sequence[bytes], owner: bytes, batch: int = 0) -> tuple[bool, list[tuple[int, ...]]]:
        """(before, for each queue: its id, messages, repeats, bytes)"""
        answer = self.ask("PUBLISH", struct.pack("<16sq", owner, batch) + self.names(names))
        assert answer.kind == "PUBLISHED"
        reader = Reader(answer.payload)
        durability, before, zero, count = reader.fixed("BBHI")
        assert durability in (1, 2, 3, 4) and before in (0, 1) and zero == 0
        joined = [reader.fixed("QQQQ") for _ in range(count)]
        reader.end()
        return bool(before), joined

    def unstage(self, names: Sequence[bytes], *, kept: bool = False) -> int:
        return self.done(self.ask("UNSTAGE", self.names(names), int(kept)))

    def stages(self, after: bytes = bytes(16), most: int = 1000) -> tuple[list[tuple[bytes, int, int, int]], bool]:
        """((name, began, messages, bytes) of each, whether there are more)"""
        answer = self.ask("STAGES", struct.pack("<16sII", after, most, 0))
        assert answer.kind == "STAGED"
        reader = Reader(answer.payload)
        count, more = reader.fixed("II")
        found = [(reader.bytes(16), *reader.fixed("QQQ")) for _ in range(count)]
        reader.end()
        return found, bool(more)  # type: ignore[return-value]  # three numbers behind the name

    # Reservations

    def reserve_open(self, queue: int, name: str) -> tuple[int, int]:
        answer = self.ask("RESERVE_OPEN", struct.pack("<Q", queue) + name.encode())
        assert answer.kind == "RESERVING"
        epoch, last = struct.unpack("<Qq", answer.payload)
        return epoch, last

    def reserve(self, queue: int, name: str, epoch: int, batch: int, most: int = 100) -> tuple[int, bool]:
        answer = self.ask("RESERVE", struct.pack("<QQqII", queue, epoch, batch, most, 0) + name.encode())
        assert answer.kind == "RESERVED"
        messages, again = struct.unpack("<II", answer.payload)
        return messages, bool(again)

    @staticmethod
    def read_bytes(queue: int, name: str, batch: int, start: int = 0, most: int = 1000, bytes_max: int = 0) -> bytes:
        return struct.pack("<QqIIII", queue, batch, start, most, bytes_max, 0) + name.encode()

    def reserve_read(self, queue: int, name: str, batch: int, start: int = 0, most: int = 1000, bytes_max: int = 0) -> list[Message]:
        return self.deliveries(self.ask("RESERVE_READ", self.read_bytes(queue, name, batch, start, most, bytes_max)))

    def reserve_settle(self, queue: int, name: str, epoch: int, batch: int) -> int:
        return self.done(self.ask("RESERVE_SETTLE", struct.pack("<QQq", queue, epoch, batch) + name.encode()))

    def reserve_end(self, kind: str, queue: int, name: str) -> int:
        """RESERVE_RELEASE or RESERVE_CLOSE."""
        return self.done(self.ask(kind, struct.pack("<Q", queue) + name.encode()))

    def reservations(self, queue: int) -> list[tuple[str, int, int, int, dict[int, int]]]:
        """(name, epoch, last, settled, the open batches: number to messages)"""
        answer = self.ask("RESERVE_LIST", struct.pack("<Q", queue))
        assert answer.kind == "RESERVATIONS"
        reader = Reader(answer.payload)
        count, zero = reader.fixed("II")
        assert zero == 0
        found = []
        for _ in range(count):
            epoch, last, settled, open_batches, zero = reader.fixed("QqqII")
            assert zero == 0
            name = reader.text()
            batches = {}
            for _ in range(open_batches):
                batch, messages, zero = reader.fixed("qII")
                assert zero == 0
                batches[batch] = messages
            found.append((name, epoch, last, settled, batches))
        reader.end()
        return found
