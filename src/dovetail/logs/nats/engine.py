"""JetStream as an engine: one stream, one ordered reader, an object store for snapshots.

The reader is a push consumer of our own making, in the memory of one server, which acknowledges nothing: with flow control, so that a node
that is slow is not flooded, and with heartbeats, so that silence means something. It is thrown away at the first sign of trouble (a gap,
silence, a lost line) and made again from the number that is due. The library's own ordered consumer and its reconnecting do the same where
nobody can ask them what they have lost; here there is one connection at a time, and one place that makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import BucketNotFoundError, NotFoundError
from nats.js.object_store import ObjectStore

from ...errors import StorageError, Unavailable
from ..shared.engine import HEARD_S, Take
from ..shared.health import Health
from ..shared.place import place_of
from . import stream
from .health import health

PORT = 4222
CONNECT_S = 3.0
RECONNECT_S = 0.05
ASK_S = 5.0
OPEN_S = 15.0
OPEN_PAUSE_S = 0.25
SILENCE_S = 3 * HEARD_S
YIELD_BYTES = 256 * 1024
"""After so much, whoever else wants the loop has a turn: a node that joins reads gigabytes."""
PENDING_BYTES_MAX = 64 << 20

_logger = logging.getLogger("dovetail.logs.nats")


class JetStream:
    def __init__(self, url: str, log: int = 0) -> None:
        """`log`: which of the namespace's logs, from 0 on."""
        self._place, self._log = place_of(url, PORT), log
        self.name = self._place.shown + (f" (log {log})" if log else "")
        self.durability = "memory"
        self.packet_bytes_max = 0
        self.replicas = 0
        self._stream = stream.stream_name(self._place.namespace, log)
        self._subject = stream.subject(self._place.namespace, log)
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._acks = ""
        self._publishing: set[asyncio.Task[None]] = set()
        self._lost: asyncio.Event = asyncio.Event()
        self._refused_at = 0.0

    # The connection

    async def open(self) -> None:
        js = await self._connected()
        client = js._nc
        version = client.connected_server_version
        self.packet_bytes_max = client.max_payload - stream.PAYLOAD_SLACK
        for problem in stream.unfit(version.major, version.minor, client.max_payload):
            raise StorageError(f"{self.name}: {problem}")
        # A server tells of the others of its cluster.
        replicas = self._place.copies(len(client.servers))
        give_up = monotonic() + OPEN_S
        while True:
            try:
                config = (await stream.the_stream(js, self._place.namespace, replicas, self._log)).config
                self.replicas = config.num_replicas or 1
                stream.check(config, self._place.namespace, self._log)
                await self._make_bucket(js)
                break
            except (nats.errors.Error, OSError) as error:
                # Servers that were just started, or elect a leader, refuse for a while.
                if monotonic() > give_up:
                    raise StorageError(f"{self.name}: its stream or bucket could not be had: {error!r}") from error
                await asyncio.sleep(OPEN_PAUSE_S)
                js = await self._connected()
        self.durability = self._place.durability(self.replicas)

    async def _connected(self) -> JetStreamContext:
        if self._js is not None and self._client is not None and self._client.is_connected:
            return self._js
        await self._disconnect()
        self._lost = asyncio.Event()
        lost = self._lost

        async def told(*_: Any) -> None:
            lost.set()

        async def trouble(error: Exception) -> None:
            _logger.debug("%s: %r", self.name, error)

        # Given several, the library gives up where the first one greets it badly; and left to its own measure it tries for two minutes.
        why: Exception | None = None
        credentials = self._place.credentials and f"{self._place.credentials}@"
        for host in random.sample(self._place.hosts, len(self._place.hosts)):
            try:
                client = await nats.connect(
                    [f"nats://{credentials}{host}"],
                    name="dovetail",
                    allow_reconnect=False,
                    connect_timeout=CONNECT_S,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=RECONNECT_S,
                    ping_interval=2,
                    disconnected_cb=told,
                    closed_cb=told,
                    error_cb=trouble,
                    skip_subject_validation=True,
                )
            except (nats.errors.Error, OSError) as error:
                why = error
                continue
            lost.clear()
            self._client, self._js = client, client.jetstream(timeout=ASK_S)
            self._acks = client.new_inbox()
            await client.subscribe(self._acks, cb=self._acknowledged)
            return self._js
        raise Unavailable(f"{self.name} cannot be reached: {why!r}") from why

    async def _disconnect(self) -> None:
        client, self._client, self._js = self._client, None, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    async def close(self) -> None:
        for task in list(self._publishing):
            task.cancel()
        await self._disconnect()

    async def health(self) -> Health | None:
        """For whoever looks and does not join: `open` was not called."""
        try:
            return await health((await self._connected())._nc, self._place, ASK_S)
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"{self.name}: {error!r}") from error

    # The log

    async def bounds(self) -> tuple[int, int]:
        try:
            state = (await (await self._connected()).stream_info(self._stream)).state
        except NotFoundError:
            raise StorageError(f"{self.name}: the stream {self._stream} is gone.") from None
        return max(1, state.first_seq), state.last_seq + 1

    def publish(self, packet: bytes) -> None:
        client = self._client
        if client is not None and client.is_connected:
            task = asyncio.get_running_loop().create_task(self._publish(client, packet))
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)

    async def _publish(self, client: Client, packet: bytes) -> None:
        with contextlib.suppress(nats.errors.Error, OSError):
            await client.publish(self._subject, packet, reply=self._acks)

    async def _acknowledged(self, message: Msg) -> None:
        """An acknowledgement tells nothing that the replay does not; a refusal tells why nothing comes back."""
        if b'"error"' in message.data and monotonic() - self._refused_at > SILENCE_S:
            self._refused_at = monotonic()
            _logger.warning("%s took no entry: %s", self.name, message.data[:300].decode(errors="replace"))

    async def follow(self, number: int, take: Take, heard: Callable[[], None]) -> None:
        js = await self._connected()
        client, lost = js._nc, self._lost
        reader = _Reader(client, number, take, heard)
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=reader.message, pending_bytes_limit=PENDING_BYTES_MAX)
        consumer = ""
        try:
            made = await js.add_consumer(
                self._stream,
                api.ConsumerConfig(
                    deliver_subject=inbox,
                    deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=number,
                    ack_policy=api.AckPolicy.NONE,
                    max_deliver=1,
                    flow_control=True,
                    idle_heartbeat=HEARD_S / 2,
                    inactive_threshold=30.0,
                    num_replicas=1,
                    mem_storage=True,
                ),
            )
            consumer = made.name
            heard()
            reader.last_heard = monotonic()
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.ended.wait(), HEARD_S / 4)
                if reader.error is not None:
                    raise reader.error
                if lost.is_set() or not client.is_connected:
                    raise Unavailable(f"the line to {self.name} was lost: {client.last_error or 'it was closed'}")
                if monotonic() - reader.last_heard > SILENCE_S:
                    # A server that is paused keeps its lines open and says nothing: another one may lead by now.
                    await self._disconnect()
                    raise Unavailable(f"nothing was heard of {self.name} for {SILENCE_S:g} s")
        except (nats.errors.Error, OSError) as error:
            await self._disconnect()
            raise Unavailable(f"{self.name} cannot be followed: {error!r}") from error
        finally:
            reader.ended.set()
            if client.is_connected:
                with contextlib.suppress(Exception):
                    await subscription.unsubscribe()
                    if consumer:
                        await js.delete_consumer(self._stream, consumer)

    async def trim(self, number: int) -> None:
        await (await self._connected()).purge_stream(self._stream, seq=number)

    # Snapshots

    async def _make_bucket(self, js: JetStreamContext) -> None:
        try:
            await js.object_store(self._stream)
        except (BucketNotFoundError, NotFoundError):
            config = api.ObjectStoreConfig(description="Dovetail: snapshots", storage=api.StorageType.FILE, replicas=self.replicas)
            await js.create_object_store(self._stream, config=config)

    async def _bucket(self) -> ObjectStore:
        return await (await self._connected()).object_store(self._stream)

    async def put(self, name: str, source: Path) -> None:
        file = await asyncio.get_running_loop().run_in_executor(None, source.open, "rb")
        with file, self._asking():
            await (await self._bucket()).put(name, file)

    async def get(self, name: str, target: Path) -> None:
        file = await asyncio.get_running_loop().run_in_executor(None, target.open, "wb")
        try:
            with file, self._asking():
                await (await self._bucket()).get(name, writeinto=file)
        except KeyError:
            await asyncio.get_running_loop().run_in_executor(None, target.unlink)
            raise

    async def names(self) -> list[str]:
        try:
            with self._asking():
                found = await (await self._bucket()).list(ignore_deletes=True)
        except KeyError:
            return []
        return [str(one.name) for one in found if not one.deleted]

    async def remove(self, name: str) -> None:
        with contextlib.suppress(KeyError), self._asking():
            await (await self._bucket()).delete(name)

    @contextlib.contextmanager
    def _asking(self) -> Any:
        try:
            yield
        except NotFoundError:
            raise KeyError(self.name) from None
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"{self.name}: {error!r}") from error


class _Reader:
    """What one consumer sends, message by message."""

    def __init__(self, client: Client, number: int, take: Take, heard: Callable[[], None]) -> None:
        self._client = client
        self._next = number
        self._take = take
        self._heard = heard
        self._since_yield = 0
        self.ended = asyncio.Event()
        self.error: Exception | None = None
        self.last_heard = monotonic()

    async def message(self, message: Msg) -> None:
        if self.ended.is_set():
            return
        try:
            self.last_heard = monotonic()
            if message.headers and not message.data and "Status" in message.headers:
                await self._control(message, message.headers)
                return
            number, stamp_ms = _place_of(message.reply)
            if number != self._next:
                raise Unavailable(f"entry {number} came where {self._next} was due")
            self._next = number + 1
            self._take(number, stamp_ms, message.data)
            self._since_yield += len(message.data)
            if self._since_yield > YIELD_BYTES:
                self._since_yield = 0
                await asyncio.sleep(0)
        except Exception as error:
            self.error = error
            self.ended.set()

    async def _control(self, message: Msg, headers: dict[str, str]) -> None:
        """A heartbeat, or the question whether more may come."""
        reply = message.reply or headers.get("Nats-Consumer-Stalled", "")
        if reply:
            await self._client.publish(reply)
        elif int(headers.get("Nats-Last-Stream", "0")) >= self._next:
            raise Unavailable(f"entry {headers['Nats-Last-Stream']} was sent and has not come")
        self._heard()


def _place_of(reply: str) -> tuple[int, int]:
    """(stream sequence, stamp in ms) out of $JS.ACK.[domain.account.]stream.consumer.delivered.SEQUENCE.n.NANOSECONDS.pending[.random]"""
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 2]) // 1_000_000
