"""Snapshots on Kafka: pieces in one topic, and in another, which is compacted, which pieces are which snapshot.

    chunks   key: upload (16 bytes) · index (u32)   value: a piece, CHUNK_BYTES at most
    blobs    key: the name                          value: JSON, or nothing once it was removed

    {"upload": hex, "first": offset of its first piece, "end": offset behind its last, "bytes": …, "crc32c": of all of it}

The record in `blobs` is written when every broker in step has every piece, so what was half written when its writer died is nobody's
snapshot. Pieces are trimmed as a prefix, up to the first one that a name stands for. Two writers share the topic without knowing it: each
reader takes the pieces of one upload, in order, each once, and compares the whole.

(Pieces in the compacted topic itself were refused: whoever wants to know which snapshots there are would read all of them, and what is
removed would stay until the broker cleans.)

Everything waits for its answer and is called in threads, one at a time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from crc32c import crc32c

from ...errors import Damaged, Unavailable
from ..shared.place import Place
from . import topic
from .cluster import Cluster, client_settings

CHUNK_BYTES = 512 * 1024
PATIENCE_S = 30.0
"""So long nothing may go on before a blob is given up."""
POLL_S = 0.5
BUFFERED_KILOBYTES = 32 << 10

_KEY = Struct(">16sI")


class Made(NamedTuple):
    """What `blobs` says of one name."""

    upload: bytes
    first: int
    end: int
    size: int
    checksum: int

    def value(self) -> bytes:
        told = {"upload": self.upload.hex(), "first": self.first, "end": self.end, "bytes": self.size, "crc32c": self.checksum}
        return json.dumps(told).encode()

    @classmethod
    def of(cls, value: bytes) -> Made:
        told = json.loads(value)
        return cls(bytes.fromhex(told["upload"]), told["first"], told["end"], told["bytes"], told["crc32c"])


class TopicBlobs:
    def __init__(self, place: Place, cluster: Cluster) -> None:
        self._place = place
        self._cluster = cluster
        self._chunks, self._index = topic.chunks(place.namespace), topic.blobs(place.namespace)
        self._turn = threading.Lock()
        self._made: dict[str, Made] = {}
        self._read_to = 0
        self._consumers: dict[str, Consumer] = {}
        """One for each topic: a consumer that is told of another topic looks for its leader a second later."""

    def put(self, name: str, source: Path) -> None:
        with self._turn, open(source, "rb") as file:
            upload, size, checksum = os.urandom(16), 0, 0
            pieces = _Writer(self._place, self._chunks)
            while piece := file.read(CHUNK_BYTES):
                pieces.write(_KEY.pack(upload, size // CHUNK_BYTES), piece)
                size, checksum = size + len(piece), crc32c(piece, checksum)
            first, end = pieces.written()
            self._say(name, Made(upload, first, end, size, checksum).value())

    def get(self, name: str, target: Path) -> None:
        with self._turn:
            made = self._look()[name]
            try:
                with open(target, "wb") as file:
                    size, checksum = 0, 0
                    for piece in self._pieces(made):
                        file.write(piece)
                        size, checksum = size + len(piece), crc32c(piece, checksum)
                if (size, checksum) != (made.size, made.checksum):
                    raise Damaged(f"{self._place.shown}: {name} came back otherwise than it was put there")
            except BaseException:
                target.unlink()
                raise

    def names(self) -> list[str]:
        with self._turn:
            return list(self._look())

    def sizes(self) -> list[tuple[str, int]]:
        with self._turn:
            return sorted((name, made.size) for name, made in self._look().items())

    def remove(self, name: str) -> None:
        with self._turn:
            if name not in self._look():
                return
            self._say(name, None)
            if kept := [one.first for one in self._look().values()]:
                # Where no name is left a piece behind the others may be of somebody who is still writing.
                self._cluster.trim(self._chunks, min(kept))

    def close(self) -> None:
        with self._turn:
            while self._consumers:
                self._consumers.popitem()[1].close()

    def _say(self, name: str, value: bytes | None) -> None:
        writer = _Writer(self._place, self._index)
        writer.write(name.encode(), value)
        writer.written()

    def _look(self) -> dict[str, Made]:
        """What there is, as of now: only what was said since the last look is read."""
        _, end = self._cluster.bounds(self._index)
        if end < self._read_to:
            self._made, self._read_to = {}, 0
        for message in self._read(self._index, self._read_to, end):
            name, value = bytes(message.key() or b"").decode(), message.value()
            if value is None:
                self._made.pop(name, None)
            else:
                self._made[name] = Made.of(bytes(value))
        self._read_to = end
        return self._made

    def _pieces(self, made: Made) -> Iterator[bytes]:
        due = 0
        for message in self._read(self._chunks, made.first, made.end):
            upload, index = _KEY.unpack(bytes(message.key() or b""))
            if upload == made.upload and index == due:
                due += 1
                yield bytes(message.value() or b"")

    def _read(self, name: str, first: int, end: int) -> Iterator[Message]:
        """What lies there from `first` up to `end`; some may be gone in between. KeyError where `first` is."""
        if first >= end:
            return
        consumer = self._consumer(name)
        consumer.assign([TopicPartition(name, 0, first)])
        try:
            due, give_up = first, time.monotonic() + PATIENCE_S
            while due < end:
                message = consumer.poll(POLL_S)
                if message is None:
                    if time.monotonic() > give_up:
                        raise Unavailable(f"{self._place.shown}: {name} could not be read from {due}")
                    continue
                give_up = time.monotonic() + PATIENCE_S
                offset, trouble = message.offset() or 0, message.error()
                if trouble is None:
                    due = offset + 1
                    if offset < end:
                        yield message
                elif trouble.code() == KafkaError._PARTITION_EOF:
                    due = max(due, offset)
                elif trouble.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KeyError(name)
                else:
                    raise Unavailable(f"{self._place.shown}: {trouble.str()}")
        finally:
            consumer.unassign()

    def _consumer(self, name: str) -> Consumer:
        if name not in self._consumers:
            settings = {
                "group.id": "dovetail",  # the library wants one; no group is joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "max.partition.fetch.bytes": 4 << 20,
                "queued.max.messages.kbytes": BUFFERED_KILOBYTES,
            }
            self._consumers[name] = Consumer(client_settings(self._place) | settings)
        return self._consumers[name]


class _Writer:
    """Records for one topic, and where they came to lie."""

    def __init__(self, place: Place, name: str) -> None:
        self._shown, self._topic = place.shown, name
        self._offsets, self._errors = offsets, errors = list[int](), list[KafkaError]()

        # It knows the lists and not this object, so that the client goes with it and not at some later time.
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset() or 0)

        self._producer = Producer(
            client_settings(place)
            | {
                "acks": "all",
                # Not idempotent: a piece that came twice is passed over, and such a producer waits for its number first.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 0,
                "message.max.bytes": topic.MESSAGE_BYTES_MIN,
                "message.timeout.ms": int(1000 * PATIENCE_S),
                "queue.buffering.max.kbytes": BUFFERED_KILOBYTES,
                "on_delivery": delivered,
            }
        )

    def write(self, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=0)
                return
            except BufferError:
                self._producer.poll(POLL_S)
            except KafkaException as error:
                raise Unavailable(f"{self._shown}: {error}") from error

    def written(self) -> tuple[int, int]:
        """When all brokers in step have all of it: the first offset, and the one behind the last."""
        while self._producer.flush(POLL_S):
            pass
        if self._errors:
            raise Unavailable(f"{self._shown}: {self._errors[0].str()}")
        return min(self._offsets, default=0), max(self._offsets, default=-1) + 1
