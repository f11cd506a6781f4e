"""A real node for tests: in memory, on a free port of this machine, with a clock that tests can move.

    with dovetail.testing.serve() as server:
        sqs = server.client()                                   boto3, if it is installed
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="tea", DelaySeconds=900)
        server.advance(900)                                     a quarter of an hour, now
        assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "tea"

It is the same door over the same store as `dovetail serve --store memory:` and answers by the same rules; a thread and an event loop of its
own are all that differs. Time flows as it always does, and `advance` adds to it, so a wait ends by itself and five minutes of deduplication
need not be waited for. This file knows no test framework (testing_pytest.py has the fixture) and imports boto3 only for `client`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from heapq import heappop, heappush
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail import node as nodes
from dovetail.clock import Clock, Handle, SystemClock
from dovetail.doors.http import Server as Edge
from dovetail.doors.http import routes
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.settings import Address, Settings, Sqs

if TYPE_CHECKING:
    from dovetail.doors.sqs import Door

T = TypeVar("T")

ADVANCE_S_MAX = 100 * 366 * 86_400
SETTLE_TURNS = 20
"""Turns of the loop after a move of the clock: whoever was woken gets as far as it can without waiting for anything outside."""
DRAIN_S = 5.0

Queues = str | os.PathLike[str] | Mapping[str, Any]
"""A file as `dovetail serve --queues` takes it, or what it would say: {"orders": {"visibility_timeout": 60}}"""


class MovableClock:
    """The machine's clock plus what was added to it. Only for one loop; `advance` runs on it."""

    def __init__(self, base: Clock | None = None) -> None:
        self._base = base or SystemClock()
        self._added_ms = 0
        self._sleepers: list[tuple[int, int, _Sleeper]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self._base.wall_ms() + self._added_ms

    def boot_ms(self) -> int:
        return self._base.boot_ms() + self._added_ms

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> Handle:
        # Two ways to be woken, by real time and by advance; whichever comes first ends the other.
        made = _Sleeper(wake)
        made.real = self._base.call_at(boot_ms - self._added_ms, made.wake)
        self._count += 1
        heappush(self._sleepers, (boot_ms, self._count, made))
        while self._sleepers[0][2].done:
            heappop(self._sleepers)
        return made

    async def advance(self, seconds: float) -> None:
        """Let time pass. Everybody who sleeps now and is due is woken in order, each at the time it asked for, and has a turn to act; who
        falls asleep again on the way is woken once more at the end. So the work is bounded by the sleepers and not by the time."""
        target = self.boot_ms() + round(seconds * 1000)
        due = []
        while self._sleepers and self._sleepers[0][0] <= target:
            due.append(heappop(self._sleepers))
        for at, _, sleeper in due:
            if not sleeper.done:
                self._added_ms += max(0, at - self.boot_ms())
                sleeper.wake()
                await asyncio.sleep(0)
        self._added_ms += max(0, target - self.boot_ms())
        again = []
        while self._sleepers and self._sleepers[0][0] <= target:
            again.append(heappop(self._sleepers)[2])
        for sleeper in again:
            sleeper.wake()


class _Sleeper:
    __slots__ = ("_call", "done", "real")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.done = False
        self.real: Handle | None = None

    def wake(self) -> None:
        if not self.done:
            self.cancel()
            self._call()

    def cancel(self) -> None:
        self.done = True
        if self.real is not None:
            self.real.cancel()


class Server:
    """A node that serves. Made by `serve`; any thread may use it."""

    def __init__(self, settings: Settings, clock: Clock, queues: Mapping[str, Any] | str | None) -> None:
        self._settings = settings
        self._clock = clock
        self._queues = queues
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dovetail.testing", daemon=True)
        self._node: nodes.Node
        self._door: Door
        self._edge: Edge
        self.port = 0

    @property
    def url(self) -> str:
        """What a client calls its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are started by the test: AWS's own names, so that boto3 and the AWS CLI find this node unchanged."""
        return {
            "AWS_ENDPOINT_URL_SQS": self.url,
            "AWS_REGION": self._settings.sqs.region,
            "AWS_DEFAULT_REGION": self._settings.sqs.region,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }

    def client(self, *, account: str | None = None, region: str | None = None, **more: Any) -> Any:
        """A boto3 client of SQS; Any because boto3 makes its methods while it runs. `more` goes to boto3 as it is."""
        try:
            boto3 = import_module("boto3")
        except ImportError:
            raise BadRequest("server.client() needs boto3: pip install boto3") from None
        given = {
            "endpoint_url": self.url,
            "region_name": region or self._settings.sqs.region,
            "aws_access_key_id": account or "testing",  # On an open door a key of twelve digits names the account.
            "aws_secret_access_key": "testing",
        }
        # A session of its own: boto3's shared one is not for several threads, and reads the profile of whoever runs the test.
        return boto3.Session().client("sqs", **{**given, **more})

    def reset(self) -> None:
        """As it was at the start: every queue, message and cool-down is gone, those of `queues` are made again. The clock stays."""
        self._run(self._reset())

    def advance(self, seconds: float) -> None:
        """Let that much time pass, now: leases end, delays come due, deduplication forgets, what is past its retention goes, and whoever
        waits for any of it is answered. A long poll waits in the same time: past its WaitTimeSeconds it has ended empty."""
        if not isinstance(self._clock, MovableClock):
            raise BadRequest('advance needs a clock that can be moved; this server was made with clock="system"')
        if not 0 <= seconds <= ADVANCE_S_MAX:
            raise LimitExceeded(f"advance by {seconds!r} s; 0 to {ADVANCE_S_MAX} are allowed: time does not go back")
        self._run(self._advance(self._clock, seconds))

    # On the loop

    async def _start(self) -> None:
        self._node = await nodes.start("memory:", settings=self._settings, clock=self._clock)
        self._door = self._node.sqs_door(self._settings)
        if self._queues is not None:
            await self._door.make_queues(self._queues)
        pages = routes(ready=lambda: self._node.ready, metrics=self._metrics, fallback=self._door.handle)
        self._edge = Edge(pages)
        self._edge.is_brief = self._door.is_brief
        _, self.port = await self._edge.listen(self._settings.http.host, self._settings.http.port)

    def _metrics(self) -> str:
        return self._edge.registry.render() + self._node.metrics()

    async def _reset(self) -> None:
        await self._door.reset()
        if self._queues is not None:
            await self._door.make_queues(self._queues)

    async def _advance(self, clock: MovableClock, seconds: float) -> None:
        await clock.advance(seconds)
        # A node in service lets old messages go only after ten minutes of clocks that agree. This clock is ours, and a test does not wait.
        await self._node.store.chores.expire()
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        self._node.broker.stop_waiting()
        await self._edge.drain(DRAIN_S)
        await self._node.close()

    # From any thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def open(self) -> None:
        """`serve` calls this, and `close`."""
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        try:
            self._run(self._stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def serve(
    *,
    queues: Queues | None = None,
    clock: str = "movable",
    cooldowns: bool = False,
    beyond: bool = False,
    account: str = "000000000000",
    region: str = "us-east-1",
    port: int = 0,
) -> Iterator[Server]:
    """A node for the length of a `with` block. `clock` is movable or system; `cooldowns` are SQS's two 60-second rules, which tests rarely
    want; `beyond` is `--sqs-beyond`. Everybody on this machine may call it, with whatever key."""
    if clock not in ("movable", "system"):
        raise BadRequest(f"clock={clock!r}: must be movable or system")
    settings = Settings(
        store="memory:",
        http=Address("127.0.0.1", port),
        account=account,
        cooldowns="on" if cooldowns else "off",
        sqs=Sqs(region=region, beyond="on" if beyond else "off"),
    )
    server = Server(settings, MovableClock() if clock == "movable" else SystemClock(), _source(queues))
    server.open()
    try:
        yield server
    finally:
        server.close()


def _source(queues: Queues | None) -> str | Mapping[str, Any] | None:
    if queues is None or isinstance(queues, str):
        return queues
    return {"queues": queues} if isinstance(queues, Mapping) else os.fspath(queues)
