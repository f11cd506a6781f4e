"""The one ordered reader of a topic: a consumer in a thread of its own, whose packets are given to the loop, in order, one by one.

It takes part in no group and commits nothing: it is told where to begin, and is thrown away at the first sign of trouble. The library
mends lost lines and follows elections by itself, and says little about it. That the leader is there is read from its own statistics: an
empty fetch is answered after FETCH_WAIT_S at the latest, so where nothing has come for longer the line or the broker is dead.

    the thread     poll → a batch → wait until the loop has taken it → poll …
    the loop       take, packet by packet, with a turn for others after so many bytes
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...errors import Unavailable
from ..shared.engine import HEARD_S, Take

POLL_S = 0.02
"""So long a reader that is told to end may take to see it."""
FETCH_WAIT_S = 0.5
BATCH = 64
YIELD_BYTES = 256 * 1024
"""After so much, whoever else wants the loop has a turn: a node that joins reads gigabytes."""
_RX_IDLE_MAX_US = 1e6 * HEARD_S / 2


class Reader:
    def __init__(self, name: str, settings: dict[str, Any], topic: str, offset: int, take: Take) -> None:
        self._name = name
        self._settings = settings | {
            "group.id": "dovetail",  # the library wants one; no group is joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": int(1000 * FETCH_WAIT_S),
            "fetch.queue.backoff.ms": 20,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.max.messages.kbytes": 64 << 10,
            "statistics.interval.ms": int(1000 * FETCH_WAIT_S),
            "stats_cb": self._statistics,
            "error_cb": self._trouble,
        }
        self._topic = topic
        self._offset = offset
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._taken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dovetail-kafka-reader", daemon=True)
        self.ended = asyncio.Event()
        self.error: BaseException | None = None
        self.last_heard = monotonic()

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Returns when the thread has ended and its lines are closed."""
        self._stopping = True
        self._taken.set()
        await asyncio.to_thread(self._thread.join)

    # In the thread

    def _run(self) -> None:
        try:
            consumer = Consumer(self._settings)
            try:
                consumer.assign([TopicPartition(self._topic, 0, self._offset)])
                while not self._stopping:
                    if (first := consumer.poll(POLL_S)) is not None:
                        self._pass([first, *consumer.consume(BATCH - 1, 0)])
            finally:
                consumer.close()
                del consumer  # An error that is kept would keep it, too.
        except Exception as error:
            self._end(error)

    def _pass(self, batch: Sequence[Message]) -> None:
        self._taken.clear()
        if self._tell(self._given, batch, 0):
            self._taken.wait()

    def _tell(self, what: Callable[..., object], *arguments: object) -> bool:
        try:
            if not self._stopping:
                self._loop.call_soon_threadsafe(what, *arguments)
                return True
        except RuntimeError:  # The loop is closed: whoever was to be told is gone.
            self._stopping = True
        return False

    def _end(self, error: BaseException) -> None:
        self._tell(self._ended, error)

    def _trouble(self, error: KafkaError) -> None:
        """Of one line, it is mended by the library; of all of them, whoever waits should know at once."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._end(Unavailable(f"the lines to {self._name} were lost: {error.str()}"))

    def _statistics(self, text: str) -> None:
        if leader_speaks(json.loads(text), self._topic):
            self.last_heard = monotonic()

    # On the loop

    def _given(self, batch: Sequence[Message], at: int) -> None:
        size = 0
        try:
            while at < len(batch) and size < YIELD_BYTES and not self._stopping:
                message = batch[at]
                if (trouble := message.error()) is not None:
                    raise Unavailable(f"{self._name} cannot be followed: {trouble.str()}")
                packet = message.value() or b""
                self._take((message.offset() or 0) + 1, message.timestamp()[1], bytes(packet))
                size += len(packet)
                at += 1
        except Exception as error:
            self._ended(error)
            return
        self.last_heard = monotonic()
        if at < len(batch) and not self._stopping:
            self._loop.call_soon(self._given, batch, at)
        else:
            self._taken.set()

    def _ended(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error if not isinstance(error, KafkaException) else Unavailable(f"{self._name} cannot be followed: {error}")
        self._stopping = True
        self._taken.set()
        self.ended.set()


def leader_speaks(told: Any, topic: str) -> bool:
    """By librdkafka's statistics: the partition is being fetched, and its leader has answered a moment ago."""
    partition = told.get("topics", {}).get(topic, {}).get("partitions", {}).get("0")
    # Without a leader its number is −1, and so is that of an address that is not known for a broker yet.
    if partition is None or partition["fetch_state"] != "active" or partition["broker"] < 0:
        return False
    return any(
        broker["nodeid"] == partition["broker"] and broker["state"] == "UP" and 0 <= broker["rxidle"] < _RX_IDLE_MAX_US
        for broker in told["brokers"].values()
    )
