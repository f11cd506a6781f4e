"""The blocking face, for scripts and notebooks: the same names, without `async` and `await`.

    with dovetail.blocking.open("local:./data") as node:
        orders = node.queue("orders")
        orders.send(b"hello")
        for message in orders.receive(max=10, wait_s=20):
            message.complete()

The node runs on a loop of its own in a background thread; every call is handed over to it and waits for the answer. Whatever a call returns
that has calls of its own comes back wrapped in the same way. Many threads may share one node.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from dovetail import node as nodes
from dovetail.clock import Clock
from dovetail.service.handles import Message, Producer, Queue, Tap
from dovetail.service.redrive import Redrive
from dovetail.settings import Settings

_WRAPPED = (nodes.Node, Queue, Message, Tap, Producer, Redrive)


class Blocking:
    """An object of the asynchronous face whose coroutines are plain calls. `inner` is the object itself."""

    __slots__ = ("_run", "inner")

    def __init__(self, inner: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(value):
            return _wrapped(value, self._run)

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [_plain(arg) for arg in args]
            return _wrapped(self._run(value(*plain, **{key: _plain(arg) for key, arg in kwargs.items()})), self._run)

        call.__name__, call.__doc__ = name, value.__doc__
        return call

    def __dir__(self) -> list[str]:
        return dir(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)


def _wrapped(value: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    if isinstance(value, _WRAPPED):
        return Blocking(value, run)
    if isinstance(value, list) and value and isinstance(value[0], _WRAPPED):
        return [Blocking(one, run) for one in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Blocking):
        return value.inner
    return [_plain(one) for one in value] if isinstance(value, list) else value


@contextmanager
def open(url: str = "local:./data", *, settings: Settings | None = None, clock: Clock | None = None) -> Iterator[Blocking]:
    """A node on the store that `url` names, for programs without an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dovetail", daemon=True)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in a script: whoever leaves takes no message with it.
            future.cancel()
            raise

    try:
        node = run(nodes.start(url, settings=settings, clock=clock))
        try:
            yield Blocking(node, run)
        finally:
            run(node.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
