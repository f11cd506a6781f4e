"""Kafka as an engine: a topic of one partition, one ordered reader, an idempotent producer; snapshots lie in two topics beside it.

An offset is the number of a packet, less one: they are dense, because nobody here writes in transactions and nothing is compacted. What is
read was written by as many brokers as `min.insync.replicas` says, so what has come back is as safe as what was acknowledged, and nothing
waits for acknowledgements.

The library (confluent-kafka, docs/decisions/0016) has threads of its own. Its producer is called on the loop, where it only puts bytes into
a buffer; its consumer has a thread (reader.py); all else waits for answers and is asked in threads (cluster.py, blobs.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...errors import BadRequest, StorageError, Unavailable
from ..shared.engine import HEARD_S, Take
from ..shared.health import Health
from ..shared.place import place_of
from . import topic
from .blobs import TopicBlobs
from .cluster import Cluster, client_settings
from .health import health
from .reader import Reader

PORT = 9092
SILENCE_S = 3 * HEARD_S
UNDER_WAY_S = 5.0
"""A packet that no broker has taken by then is dropped: it is published again anyway, by whoever waits for it."""
BUFFERED_KILOBYTES = 64 << 10

_logger = logging.getLogger("dovetail.logs.kafka")


class Kafka:
    def __init__(self, url: str, log: int = 0) -> None:
        """`log`: which of the namespace's logs, from 0 on. To topics each is a namespace of its own, with a name that no namespace has."""
        self._place = place_of(url, PORT)
        if log:
            self._place = self._place._replace(namespace=f"{self._place.namespace}.{log}")
        if self._place.credentials:
            raise BadRequest("kafka:// takes no user and password: nodes speak to brokers without them")
        self.name = self._place.shown
        self.durability = "memory"
        self.packet_bytes_max = 0
        self._log = topic.log(self._place.namespace)
        self._cluster = Cluster(self._place)
        self._blobs = TopicBlobs(self._place, self._cluster)
        self._message_bytes = topic.MESSAGE_BYTES_MIN
        self._producer: Producer | None = None
        self._broken = False
        self._refused_at = 0.0

    async def open(self) -> None:
        await asyncio.to_thread(self._cluster.check_versions)
        found = await asyncio.to_thread(self._cluster.topics)
        for name, told in topic.unfit(found, self._place.namespace, self._place.synced).items():
            raise StorageError(
                f"The topic {name} cannot hold a log: {'; '.join(told)}. (`kafka-configs.sh --alter --entity-type topics --entity-name"
                f" {name} --add-config …`)"
            )
        log = found[self._log]
        self._message_bytes = int(log.settings["max.message.bytes"])
        self.packet_bytes_max = self._message_bytes - topic.BATCH_OVERHEAD_BYTES
        self.durability = self._place.durability(log.copies)
        self._producer = self._made_producer()

    def _made_producer(self) -> Producer:
        settings = client_settings(self._place) | {
            "acks": "all",
            "enable.idempotence": True,
            # One request at a time: what comes meanwhile shares the next one, which brokers take in less time than several.
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 0,
            "message.max.bytes": self._message_bytes,
            "batch.size": self._message_bytes,
            "message.timeout.ms": int(1000 * UNDER_WAY_S),
            "queue.buffering.max.kbytes": BUFFERED_KILOBYTES,
            "retry.backoff.ms": 50,
            "delivery.report.only.error": True,
            "on_delivery": self._refused,
            "error_cb": self._trouble,
        }
        return Producer(settings)

    async def close(self) -> None:
        # Letting go of clients waits for their threads.
        held, self._producer = [self._producer], None
        for letting_go in (held.clear, self._blobs.close, self._cluster.let_go):
            await asyncio.to_thread(letting_go)

    async def health(self) -> Health | None:
        """For whoever looks and does not join: `open` was not called."""
        return await asyncio.to_thread(health, self._place, self._cluster, self._blobs)

    # The log

    async def bounds(self) -> tuple[int, int]:
        first, following = await asyncio.to_thread(self._cluster.bounds, self._log)
        return first + 1, following + 1

    def publish(self, packet: bytes) -> None:
        producer = self._producer
        if producer is not None:
            # A full buffer means that nobody takes anything; a producer that has failed for good is replaced below.
            with contextlib.suppress(BufferError, KafkaException):
                producer.produce(self._log, packet, partition=0)
            self._serve(producer)

    def _serve(self, producer: Producer) -> None:
        """Hear what the producer has to say: nothing, as long as it goes well."""
        producer.poll(0)
        if self._broken:
            self._broken = False
            self._producer = self._made_producer()

    def _refused(self, error: KafkaError | None, message: Message) -> None:
        """That it was taken is seen in the replay; that it was not tells why nothing comes back."""
        if error is not None and monotonic() - self._refused_at > SILENCE_S:
            self._refused_at = monotonic()
            _logger.warning("%s took no entry: %s", self.name, error.str())

    def _trouble(self, error: KafkaError) -> None:
        if error.fatal():
            _logger.warning("the producer of %s is made anew: %s", self.name, error.str())
            self._broken = True

    async def follow(self, number: int, take: Take, heard: Callable[[], None]) -> None:
        reader = Reader(self.name, client_settings(self._place), self._log, number - 1, take)
        # Whoever leads has just said where the log begins and ends (`bounds`).
        heard()
        reader.start()
        told = reader.last_heard
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.ended.wait(), HEARD_S / 4)
                if reader.error is not None:
                    raise reader.error
                if self._producer is not None:
                    self._serve(self._producer)
                if reader.last_heard > told:
                    told = reader.last_heard
                    heard()
                elif monotonic() - told > SILENCE_S:
                    # A broker that is paused keeps its lines open and says nothing: another one may lead by now.
                    raise Unavailable(f"nothing was heard of {self.name} for {SILENCE_S:g} s")
        finally:
            await reader.stop()

    async def trim(self, number: int) -> None:
        await asyncio.to_thread(self._cluster.trim, self._log, number - 1)

    # Snapshots

    async def put(self, name: str, source: Path) -> None:
        await asyncio.to_thread(self._blobs.put, name, source)

    async def get(self, name: str, target: Path) -> None:
        await asyncio.to_thread(self._blobs.get, name, target)

    async def names(self) -> list[str]:
        return await asyncio.to_thread(self._blobs.names)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._blobs.remove, name)
