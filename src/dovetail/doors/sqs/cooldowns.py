"""SQS's two 60-second rules: a deleted queue's name rests before it can be made again, and a purge rests before the next one.

They live in memory: after a restart nobody waits. `--cooldowns off` is for tests, and for people.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from dovetail.doors.sqs import errors
from dovetail.doors.sqs.errors import SqsError

REST_MS = 60_000
KEPT_MAX = 10_000


class Cooldowns:
    def __init__(self, now_ms: Callable[[], int], enabled: bool) -> None:
        self._now_ms = now_ms
        self._enabled = enabled
        self._since: OrderedDict[Hashable, int] = OrderedDict()

    def check_created(self, namespace: str, name: str) -> None:
        if self._rests((namespace, name)):
            raise SqsError(errors.QUEUE_DELETED_RECENTLY)

    def note_deleted(self, namespace: str, name: str) -> None:
        self._begin((namespace, name))

    def check_purged(self, queue: int, name: str) -> None:
        """Refuses within the minute; otherwise the minute begins."""
        if self._rests(queue):
            raise SqsError(errors.PURGE_IN_PROGRESS, f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.")
        self._begin(queue)

    def clear(self) -> None:
        self._since.clear()

    def _rests(self, key: Hashable) -> bool:
        since = self._since.get(key)
        return since is not None and self._now_ms() - since < REST_MS

    def _begin(self, key: Hashable) -> None:
        if self._enabled:
            self._since[key] = self._now_ms()
            self._since.move_to_end(key)
            if len(self._since) > KEPT_MAX:
                self._since.popitem(last=False)
