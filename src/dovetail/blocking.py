"""The blocking face, for scripts and notebooks: the same names, without `async` and `await`.

    with dovetail.blocking.open("local:./data") as node:          or dovetail.blocking.connect("dovetail://127.0.0.1:9325")
        orders = node.queue("orders")
        orders.send(b"hello")
        for message in orders.receive(max=10, wait_s=20):
            message.complete()

The node, or the connection to one, runs on a loop of its own in a background thread; every call is handed over to it and waits for the
answer. Whatever a call returns that has calls of its own comes back wrapped in the same way. Many threads may share one node.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dovetail.clock import Clock
from dovetail.errors import Closed
from dovetail.service.consumer import Consumer
from dovetail.service.handles import Facts, Producer, Queue, Queues, Reservation, Stage, Tap
from dovetail.service.once import Once
from dovetail.service.once import process_once as once
from dovetail.service.received import Message, Messages
from dovetail.settings import Settings

if TYPE_CHECKING:
    from dovetail.client import Tls

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Blocking:
    """An object of the asynchronous face whose coroutines are plain calls. `inner` is the object itself."""

    __slots__ = ("_run", "inner")

    def __init__(self, inner: Any, run: Run) -> None:
        self.inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.ismethod(value):
            return _wrapped(value, self._run)

        # Also what is no coroutine runs where everything else does: nothing inside has to expect a second thread.
        async def called(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            made = value(*[_plain(arg) for arg in args], **{key: _plain(arg) for key, arg in kwargs.items()})
            return await made if inspect.isawaitable(made) else made

        def call(*args: Any, **kwargs: Any) -> Any:
            return _wrapped(self._run(called(args, kwargs)), self._run)

        call.__name__, call.__doc__ = name, value.__doc__
        return call

    def __dir__(self) -> list[str]:
        return dir(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)


class BlockingScope(Blocking):
    """A message, a consumer or a `process_once`: what the other face has for `async with` is for `with` here."""

    __slots__ = ()

    def __enter__(self) -> BlockingScope:
        self._run(self.inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self.inner.__aexit__(kind, error, trace))


class BlockingMessages(Blocking, Sequence[BlockingScope]):
    """What one receive gave."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.inner)

    @overload
    def __getitem__(self, index: int) -> BlockingScope: ...

    @overload
    def __getitem__(self, index: slice) -> list[BlockingScope]: ...

    def __getitem__(self, index: int | slice) -> BlockingScope | list[BlockingScope]:
        found = self.inner[index]
        return [BlockingScope(one, self._run) for one in found] if isinstance(index, slice) else BlockingScope(found, self._run)

    def __eq__(self, other: object) -> bool:
        return bool(self.inner == _plain(other))

    __hash__ = None  # type: ignore[assignment]  # as a list has none


class BlockingConsumer(BlockingScope):
    """Messages as they come, for a plain loop. They are handed over in the batches in which they came, not one by one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[BlockingScope]:
        for batch in self.batches():
            looked = 0
            try:
                for message in batch:
                    looked += 1
                    yield message
            finally:
                if looked < len(batch):
                    with suppress(Closed):
                        self._run(self.inner.queue.release(batch.inner[looked:]))

    def batches(self) -> Iterator[BlockingMessages]:
        batches: AsyncIterator[Messages] = self.inner.batches()
        try:
            while (batch := self._run(_next(batches))) is not None:
                yield BlockingMessages(batch, self._run)
        finally:
            with suppress(Closed):  # A loop that outlived its node has nothing to give back to.
                self._run(self.inner.close())


async def _next(batches: AsyncIterator[T]) -> T | None:
    return await anext(batches, None)


_WRAPPED: tuple[tuple[Any, type[Blocking]], ...] = (
    ((Queues, Queue, Tap, Producer, Stage, Reservation, Facts), Blocking),
    (Messages, BlockingMessages),
    ((Message, Once), BlockingScope),
    (Consumer, BlockingConsumer),
)


def _wrapped(value: Any, run: Run) -> Any:
    for kinds, wrapper in _WRAPPED:
        if isinstance(value, kinds):
            return wrapper(value, run)
    if hasattr(value, "moved"):  # A redrive, here or elsewhere.
        return Blocking(value, run)
    return [_wrapped(one, run) for one in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Blocking):
        return value.inner
    return [_plain(one) for one in value] if isinstance(value, list) else value


def process_once(message: Any, key: str, *, ledger: Any = None) -> BlockingScope:
    """For `with`: as dovetail.process_once."""
    return BlockingScope(once(message.inner, key, ledger=_plain(ledger)), message._run)


@contextmanager
def open(url: str = "local:./data", *, settings: Settings | None = None, clock: Clock | None = None) -> Iterator[Blocking]:
    """A node on the store that `url` names, for programs without an event loop."""
    from dovetail import node as nodes  # Clients take no server along.

    with _kept(lambda: nodes.start(url, settings=settings, clock=clock)) as node:
        yield node


@contextmanager
def connect(
    url: str = "dovetail://127.0.0.1:9325",
    *,
    key: str = "",
    secret: str = "",
    session_token: str = "",
    tls: Tls = None,
    numbered: bool = True,
    timeout_s: float = 30.0,
) -> Iterator[Blocking]:
    """A node at the other end of a connection, for programs without an event loop. As dovetail.connect."""
    from dovetail import client  # Nor do nodes in the same process take a client along.

    async def connected() -> client.Client:
        return await client.connect(
            url, key=key, secret=secret, session_token=session_token, tls=tls, numbered=numbered, timeout_s=timeout_s
        )

    with _kept(connected) as node:
        yield node


@contextmanager
def _kept(start: Callable[[], Coroutine[Any, Any, Any]]) -> Iterator[Blocking]:
    """A loop in a thread of its own, and on it what `start` makes, until the block ends."""
    calls = Calls()
    try:
        node = calls.run(start())
        try:
            yield Blocking(node, calls.run)
        finally:
            with suppress(Closed):  # A child that was forked in the block ends it too, and it is not its own.
                calls.run(node.close())
    finally:
        calls.end()


class Calls:
    """Hands what other threads ask to a loop in a thread of its own. Nobody is left waiting: neither who asks while it ends, nor a child
    that was forked, which has the loop's sockets and not its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._waiting: set[Future[Any]] = set()
        self._over = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="dovetail", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            future = self._asked(coroutine)
        except BaseException:
            coroutine.close()
            raise
        try:
            if self._over:
                future.cancel()  # It was asked while the loop ended, and may never be run.
            return future.result()
        except CancelledError:
            raise Closed(_ENDED) from None
        except BaseException:
            # Ctrl-C in a script: whoever leaves takes no message with it.
            future.cancel()
            raise
        finally:
            self._waiting.discard(future)

    def _asked(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        if os.getpid() != self._process:
            raise Closed("This process was forked from the one that opened it: open it, or connect, in this process.")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # The loop is closed.
            raise Closed(_ENDED) from None
        self._waiting.add(future)
        return future

    def end(self) -> None:
        if os.getpid() != self._process:
            return  # To close the loop would take its sockets out of the parent's hands.
        loop = self._loop
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        self._over = True
        loop.run_until_complete(_ended())
        loop.close()
        for future in list(self._waiting):
            future.cancel()


_ENDED = "The block that it was opened for has ended."


async def _ended() -> None:
    """What is still at work on this loop is ended."""
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
