"""Start a node: open the store, open the doors, print one line when it serves, and stop cleanly on SIGTERM or Ctrl-C.

The line on stdout is `dovetail ready http=http://127.0.0.1:9324 native=off`; everything else goes to stderr."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..doors.http import Server, routes
from ..errors import BadRequest
from ..settings import Address, Settings
from . import flags, lines

EXAMPLES = """\
examples:
  dovetail serve                                       messages are kept in ./data
  dovetail serve --store local:/var/lib/dovetail       … or elsewhere
  dovetail serve --store memory: --http 127.0.0.1:0    for tests: nothing kept, a free port, see the ready line
  curl http://127.0.0.1:9324/-/ready                   does it take messages?
"""

WATCH_S = 0.25
"""How soon a node that stopped by itself (a failed sync) ends the process."""

log = logging.getLogger("dovetail.serve")


class Served(Protocol):
    """What is asked of a node here."""

    @property
    def ready(self) -> bool:
        """It takes messages. Turns false for good when the node has to stop by itself."""

    def metrics(self) -> str:
        """In the Prometheus text format."""


Opener = Callable[[], AbstractAsyncContextManager[Served]]


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser)


def run(given: argparse.Namespace) -> int:
    import uvloop

    import dovetail

    loaded = flags.read(given)
    settings = loaded.settings
    lines.write_to_stderr(settings.log)
    for name in loaded.unknown:
        log.warning("%s is set in the environment, and there is no such setting", name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings, lambda: dovetail.open(settings.store, settings=settings)))


async def serve(settings: Settings, opener: Opener) -> int:
    """One node from start to stop; returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    node: Served | None = None
    # The door opens before the store: a taken port is found before anything is locked, and /-/healthy answers while a long log is
    # replayed. Until then the node is not ready, and says so.
    server = Server(
        routes(
            ready=lambda: node is not None and node.ready and not stop.is_set(),
            metrics=lambda: server.registry.render() + (node.metrics() if node is not None else ""),
        )
    )
    http = await _listen(server, settings.http)
    try:
        async with opener() as node:
            # What was made up to here stays; the collector need not look at it again.
            gc.collect()
            gc.freeze()
            print(f"dovetail ready http={http} native={settings.native}", flush=True)
            log.info("serving store=%s http=%s", flags.shown("store", settings.store), http)
            failed = await _stopped_by_itself(node, stop)
            if failed:
                log.error("the node stopped by itself; the lines above say why, and what was acknowledged is safe")
                stop.set()
            else:
                log.info("stopping: calls under way have %g s", settings.drain_s)
            if not await server.drain(0 if failed else settings.drain_s):
                log.warning("some calls took longer and were cut off")
        log.info("stopped")
        return int(failed)
    finally:
        await server.drain(0)


async def _listen(server: Server, address: Address) -> str:
    if address.off:
        return "off"
    if not address.loopback:
        raise BadRequest(
            f"--http {address}: this version has no accounts, so it listens on this machine only (127.0.0.1, [::1] or localhost);"
            " beyond it everyone could read and delete every message"
        )
    try:
        return f"http://{Address(*await server.listen(address.host, address.port))}"
    except OSError as error:
        raise BadRequest(f"--http {address}: cannot listen there: {error.strerror or error}") from None


async def _stopped_by_itself(node: Served, stop: asyncio.Event) -> bool:
    """Wait for a signal (False), or for a node that can no longer keep its promises (True)."""
    while node.ready:
        try:
            await asyncio.wait_for(stop.wait(), WATCH_S)
            return False
        except TimeoutError:
            pass
    return not stop.is_set()
