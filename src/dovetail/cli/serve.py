"""Start a node: open the store, open the doors, print one line when it serves, and stop cleanly on SIGTERM or Ctrl-C.

The line on stdout is `dovetail ready http=http://127.0.0.1:9324 native=dovetail://127.0.0.1:9325`; everything else goes to stderr."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import re
import resource
import signal
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ..doors.http import Request, Response, Server, plain, routes
from ..doors.native.server import Server as NativeServer
from ..errors import BadRequest
from ..node import Node, start
from ..service.accounts import Accounts, path_beside
from ..settings import Address, Settings
from . import flags, lines
from .tls import Certificate

if TYPE_CHECKING:
    from ..doors.native.door import Door as NativeDoor
    from ..doors.sqs import Door

EXAMPLES = """\
examples:
  dovetail serve                                       messages are kept in ./data
  dovetail serve --store local:/var/lib/dovetail       … or elsewhere
  dovetail serve --store memory: --http 127.0.0.1:0    for tests: nothing kept, a free port, see the ready line
  dovetail serve --queues queues.toml                  make these queues first
  aws --endpoint-url http://127.0.0.1:9324 sqs create-queue --queue-name orders
  curl http://127.0.0.1:9324/-/ready                   does it take messages?

beyond this machine:
  dovetail account create shop && dovetail serve --http 0.0.0.0:9324 --auth signed --tls-cert c.pem --tls-key k.pem
"""

WATCH_S = 0.25
"""How soon a node that stopped by itself (a failed sync) ends the process, and changed keys and certificates are noticed."""

log = logging.getLogger("dovetail.serve")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser)


def run(given: argparse.Namespace) -> int:
    import uvloop

    loaded = flags.read(given)
    settings = loaded.settings
    # Every caller is a file to the system, and the usual soft limit of 1024 is the price of a habit: take what we may have.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    lines.write_to_stderr(settings.log)
    for name in loaded.unknown:
        log.warning("%s is set in the environment, and there is no such setting", name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings))


class _Doors:
    """What stands between the edge and the node: closed until the store is open."""

    def __init__(self, settings: Settings, accounts: Accounts | None) -> None:
        self.node: Node | None = None
        self.stopping = asyncio.Event()
        self._settings = settings
        self._accounts = accounts
        self._sqs: Door | None = None
        self._native: NativeDoor | None = None
        self._routes = routes(ready=self.is_ready, metrics=self.metrics, fallback=self.handle)
        self.server = Server(self._routes)
        self.native = NativeServer(registry=self.server.registry)

    async def open(self, node: Node, native: str) -> None:
        """`native` is where the native door listens, or off."""
        sqs = node.sqs_door(self._settings, self._accounts)
        if self._settings.queues:
            await sqs.make_queues(self._settings.queues)
        self.node, self._sqs = node, sqs
        self._routes.root = sqs.handle
        self.server.is_brief = sqs.is_brief
        if native != "off":
            self._native = node.native_door(self._settings, self._accounts, sqs)
            self._native.addresses = _advertised(self._settings.advertise, native)
            await self.native.serve(self._native)

    def accounts_changed(self) -> None:
        for door in (self._sqs, self._native):
            if door is not None:
                door.accounts_changed()

    async def drain(self, timeout_s: float) -> bool:
        """Both doors at once; False if something took longer."""
        return all(await asyncio.gather(self.server.drain(timeout_s), self.native.drain(timeout_s)))

    def is_ready(self) -> bool:
        return self.node is not None and self.node.reachable and not self.stopping.is_set()

    def metrics(self) -> str | Awaitable[bytes]:
        own = self.server.registry
        return self.node.broker.metrics_page([own]) if self.node is not None else own.render()

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        return self._sqs.handle(request) if self._sqs is not None else plain(503, "the store is still being opened")


async def serve(settings: Settings) -> int:
    """One node from start to stop; returns the exit code."""
    accounts = _accounts(settings)
    certificate = Certificate.load(settings.tls)
    doors = _Doors(settings, accounts)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, doors.stopping.set)
    # The door opens before the store: a taken port is found before anything is locked, and /-/healthy answers while a long log is
    # replayed. Until then the node is not ready, and says so.
    http = await _listen(doors.server, "http", settings.http, settings, certificate)
    try:
        native = await _listen(doors.native, "native", settings.native, settings, certificate)
        node = await start(settings.store, settings=settings)
        try:
            await doors.open(node, native)
            # What was made up to here stays; the collector need not look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 20, 50)
            print(f"dovetail ready http={http} native={native}", flush=True)
            log.info("serving store=%s http=%s native=%s auth=%s", flags.shown("store", settings.store), http, native, settings.auth)
            failed = await _stopped_by_itself(node, doors, accounts, certificate)
            if failed:
                log.error("the node stopped by itself; the lines above say why, and what was acknowledged is safe")
                doors.stopping.set()
            else:
                log.info("stopping: calls under way have %g s", settings.drain_s)
            # Whoever waits for a message is told at once that none will come from here.
            node.broker.stop_waiting()
            if not await doors.drain(0 if failed else settings.drain_s):
                log.warning("some calls took longer and were cut off")
        finally:
            await node.close()
        log.info("stopped")
        return int(failed)
    finally:
        await doors.drain(0)


def _accounts(settings: Settings) -> Accounts | None:
    """The accounts, where signatures are asked for."""
    if settings.auth != "signed":
        return None
    accounts = Accounts.load(settings.accounts or path_beside(settings.store), os.environ, settings.account)
    if not len(accounts):
        raise BadRequest(
            "--auth signed: there is no account yet. `dovetail account create NAME` makes one, or set DOVETAIL_ACCESS_KEY_ID and"
            " DOVETAIL_SECRET_ACCESS_KEY"
        )
    return accounts


async def _listen(server: Server | NativeServer, door: str, address: Address, settings: Settings, certificate: Certificate | None) -> str:
    """The address of a door as a URL; off where it stays shut."""
    if address.off:
        return "off"
    if not address.loopback:
        if settings.auth == "open":
            raise BadRequest(
                f"--{door} {address}: with --auth open a node listens on this machine only (127.0.0.1, [::1] or localhost); beyond it"
                " everyone could read and delete every message. Use --auth signed with accounts, or, if that is what you want, --auth any"
            )
        if settings.auth == "any":
            log.warning("--auth any on %s: EVERYBODY who reaches this address can read and delete every message", address)
        if certificate is None:
            log.warning("no TLS on %s: whoever sees the traffic sees every message (--tls-cert, --tls-key)", address)
    try:
        place = await server.listen(address.host, address.port, certificate.context if certificate is not None else None)
    except OSError as error:
        raise BadRequest(f"--{door} {address}: cannot listen there: {error.strerror or error}") from None
    return f"{SCHEMES[door][certificate is not None]}://{Address(*place)}"


SCHEMES = {"http": ("http", "https"), "native": ("dovetail", "dovetails")}
"""Of a door's URL, without and with TLS."""


def _advertised(host: str, native: str) -> list[str]:
    """The address that clients elsewhere are told: the host that was named, and the port at which we listen."""
    host = host.rpartition(":")[0] if re.fullmatch(r"(\[.*\]|[^:]*):\d+", host) else host
    return [f"{host}:{native.rpartition(':')[2]}"] if host else []


async def _stopped_by_itself(node: Node, doors: _Doors, accounts: Accounts | None, certificate: Certificate | None) -> bool:
    """Wait for a signal (False), or for a node that can no longer keep its promises (True). Meanwhile keys and certificates may change."""
    while node.ready:
        try:
            await asyncio.wait_for(doors.stopping.wait(), WATCH_S)
            return False
        except TimeoutError:
            if accounts is not None and accounts.reload_if_changed():
                doors.accounts_changed()
            if certificate is not None:
                certificate.reload_if_changed()
    return not doors.stopping.is_set()
