"""A real node in a process of its own, as Spark meets it: an address, queues that are pushed to, and a process that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.client.address import Credentials, Target
from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.message import Attribute, encode_attributes
from dovetail.core.operation import Push
from dovetail.doors.native.answers import Counted, Reservation, Tap
from dovetail.doors.native.codec import Kind, requests
from dovetail.spark.line import Line

ROOT = Path(__file__).resolve().parent.parent.parent
READY = re.compile(r"dovetail ready http=off native=dovetail://127\.0\.0\.1:(\d+)\n")
PUSH_MESSAGES = 1000
SILENT_S = 60.0
"""A line on which nothing is said for two minutes is closed by the node, and a test of the whole suite may take as long."""
MODES: dict[str, dict[str, Any]] = {"tap": {"tap": "t"}, "reserve": {"mode": "reserve", "reservation": "r"}}
"""How a stream reads: by which options."""


class Node:
    def __init__(self, store: str = "memory:", *flags: str, credentials: Credentials = Credentials()) -> None:  # noqa: B008
        self.store = store
        self.flags = flags or ("--auth", "any")
        self.credentials = credentials
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._line: Line | None = None
        self._asked = 0.0

    @property
    def endpoint(self) -> str:
        return f"dovetail://127.0.0.1:{self.port}"

    def start(self) -> Node:
        """The first start takes a free port, later ones the same."""
        command = [sys.executable, "-m", "dovetail", "serve", "--store", self.store, "--http", "off", "--log-level", "error", *self.flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")} | {
            "PYTHONPATH": str(ROOT / "src")
        }
        key, secret, _ = self.credentials
        if key:
            environment |= {"DOVETAIL_ACCESS_KEY_ID": key, "DOVETAIL_SECRET_ACCESS_KEY": secret}
        self._process = subprocess.Popen(
            [*command, "--native", f"127.0.0.1:{self.port}"], env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        ready = READY.fullmatch(self._process.stdout.readline())
        assert ready is not None
        self.port = int(ready[1])
        return self

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def hang_up(self) -> None:
        """The next request makes another line."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _end(self, how: signal.Signals) -> None:
        self.hang_up()
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(120)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def line(self) -> Line:
        now = time.monotonic()
        if now - self._asked > SILENT_S:
            self.hang_up()
        self._asked = now
        if self._line is None:
            self._line = Line(Target("127.0.0.1", self.port), self.credentials, None, 120)
        return self._line

    def declare(self, name: str, **rules: Any) -> int:
        return int(self.line.ask(requests.Declare(name, rules)).queue)

    def drop(self, name: str) -> None:
        self.line.ask(requests.About(Kind.DROP, self.declare(name)))

    def push(
        self, name: str, bodies: Sequence[bytes], attributes: dict[str, Attribute] | None = None, groups: Sequence[bytes] | None = None
    ) -> None:
        queue = self.declare(name)
        for at in range(0, len(bodies), PUSH_MESSAGES):
            some = bodies[at : at + PUSH_MESSAGES]
            told = Column.of([encode_attributes(attributes)] * len(some)) if attributes else None
            group = Column.of(groups[at : at + PUSH_MESSAGES]) if groups else None
            self.line.ask(requests.Push(codec.encode_push(Push((queue,), Column.of(some), attributes=told, groups=group))))

    def waiting(self, name: str) -> list[bytes]:
        """The bodies of what waits, in order."""
        queue, found, after = self.declare(name), list[bytes](), 0
        while page := self.line.ask(requests.Peek(queue, 10_000, after)):
            if not page.sequences:
                break
            found += [bytes(body) for body in page.bodies]
            after = page.sequences[-1]
        return found

    def tap(self, name: str, tap: str) -> Tap:
        taps = self.line.ask(requests.About(Kind.TAP_LIST, self.declare(name))).taps
        return next(one for one in taps if one.name == tap)

    def reservation(self, name: str, reservation: str) -> Reservation:
        found = self.line.ask(requests.About(Kind.RESERVE_LIST, self.declare(name))).reservations
        return next(one for one in found if one.name == reservation)

    def release(self, name: str, reservation: str) -> int:
        return int(self.line.ask(requests.Reservation(Kind.RESERVE_RELEASE, self.declare(name), reservation)).value)

    def counts(self, name: str) -> Counted:
        counted: Counted = self.line.ask(requests.About(Kind.COUNTS, self.declare(name)))
        return counted

    def receive(self, name: str, most: int = 1000) -> list[bytes]:
        """As an ordinary consumer does, who is done with them at once."""
        return list(map(bytes, self.line.ask(requests.Pull(self.declare(name), most=most, delete=True)).bodies))

    def advance(self, name: str, tap: str, sequence: int) -> None:
        self.line.ask(requests.TapAdvance(self.declare(name), tap, sequence))


def bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]
