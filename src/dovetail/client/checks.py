"""What is sent is checked here as far as it can be: a frame that the node refuses takes others with it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.client.place import Place
from dovetail.core.operation import DEFAULT
from dovetail.errors import LimitExceeded
from dovetail.limits import DELAY_MS_MAX, QUEUES_PER_PUSH_MAX
from dovetail.stores.batches import check_batch
from dovetail.stores.store import Outgoing


def check_messages(messages: Sequence[Outgoing]) -> None:
    check_batch(messages)
    for one in messages:
        check_duration("delay", one.delay_ms, DELAY_MS_MAX)


def check_places(places: Sequence[Place]) -> None:
    if not 1 <= len({place.queue for place in places}) == len(places) <= QUEUES_PER_PUSH_MAX:
        raise LimitExceeded(f"a push names 1 to {QUEUES_PER_PUSH_MAX} different queues")


def check_duration(what: str, value: int, most: int) -> None:
    if value != DEFAULT and not 0 <= value <= most:
        raise LimitExceeded(f"a {what} of {value} ms; 0 to {most} are allowed")
