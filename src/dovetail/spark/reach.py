"""A line to one of several addresses, kept open, and made again when it was lost. It knows how long to try and what may be tried again.

Everything that Spark asks of a node may be asked twice: reads change nothing, opening is idempotent, and a tap only moves forward. So a
node that restarts is waited for, here and nowhere else; in local[N] Spark itself runs a task only once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dovetail.client.address import Credentials, Target, context_of, target_of, targets_of
from dovetail.doors.native.codec import AccessDenied, requests
from dovetail.errors import BadRequest, DovetailError, OverQuota, StorageFull, Throttled, Unavailable, Unknown
from dovetail.spark.line import Line

CALL_TIMEOUT_S = 30.0
"""For one answer. A node answers reads within milliseconds; what takes longer is not there any more."""
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0

Answer = TypeVar("Answer")


class Reach:
    """`endpoint` names one node or several; the first that answers is used for as long as it answers. One that fails is tried last from
    then on: it may take connections and still be cut off from its log."""

    def __init__(self, endpoint: str, credentials: Credentials, patience_s: float, first_patience_s: float) -> None:
        self._targets, tls = targets_of(endpoint)
        self._context = context_of(None, tls)
        self._credentials = credentials
        self._patience_s = patience_s
        self._first_patience_s = first_patience_s
        self._met = False
        self._line: Line | None = None
        self._at: Target | None = None
        self._opened: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"Reach({', '.join(map(str, self._targets))})"

    @property
    def line(self) -> Line:
        """The open line, or a new one: every address is tried once."""
        if self._line is None:
            self._line = self._dialled()
            self._met = True
            self._opened = {}
        return self._line

    def _dialled(self) -> Line:
        lost: list[str] = []
        for target in self._targets:
            try:
                line = Line(target, self._credentials, self._context, CALL_TIMEOUT_S)
            except AccessDenied:
                raise
            except (DovetailError, OSError) as error:
                lost.append(str(error))
            else:
                self._at = target
                return line
        raise Unavailable("; ".join(lost))

    def know(self, addresses: list[str]) -> None:
        """More addresses, behind those that it has: what a node says of itself and its like."""
        more: list[Target] = [target_of(address) for address in addresses]
        self._targets += [target for target in more if target not in self._targets]

    def drop(self, error: DovetailError | None = None) -> None:
        """Let go of the line; the next request makes another, and with another node where this one has failed."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._at is not None and isinstance(error, Unavailable | Unknown) and not isinstance(error, Throttled):
            self._targets.remove(self._at)
            self._targets.append(self._at)
            self._at = None

    def open(self, namespace: str, name: str) -> int:
        """The id of a queue, opened on the line that is used now. To be called within `patiently`, like `line`."""
        line = self.line
        known = self._opened.get((namespace, name))
        if known is None:
            known = self._opened[namespace, name] = int(line.ask(requests.Open(name, namespace)).queue)
        return known

    def has_open(self, namespace: str, name: str) -> bool:
        """It was opened on the line that is used now."""
        return self._line is not None and (namespace, name) in self._opened

    def forget(self, namespace: str, name: str) -> None:
        """Ask for its id again next time: it may have been made anew."""
        self._opened.pop((namespace, name), None)

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """The answer of `work`, which may be done again, also after a while and over another line."""
        attempt = self.attempts()
        while True:
            try:
                return work()
            except DovetailError as error:
                self.drop_after(error)
                attempt.failed(error)

    def attempts(self) -> Attempts:
        return Attempts(self._patience_s if self._met else self._first_patience_s)

    def drop_after(self, error: DovetailError) -> None:
        """A refusal is an answer and the line is good for more; whatever else happened, nobody knows what comes next on it."""
        if not isinstance(error, BadRequest | OverQuota | StorageFull):
            self.drop(error)


class Attempts:
    """How often something failed in a row, and whether to go on. `went` begins anew."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.went()

    def went(self) -> None:
        self._pause_s = PAUSE_S
        self._since: float | None = None

    def failed(self, error: DovetailError, *, again: bool = False) -> None:
        """Returns when it is time to try again, and raises the error when there has been time enough or no time would help (unless the
        caller knows that it does: `again`)."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if not (again or isinstance(error, Unavailable | Unknown)) or now - self._since + self._pause_s > self._patience_s:
            raise error
        pause_s = self._pause_s
        if isinstance(error, Throttled):
            pause_s = max(pause_s, error.retry_after_ms / 1000)
        time.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
