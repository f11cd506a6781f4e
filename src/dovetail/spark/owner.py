"""The driver's side of a reservation: it owns the name on every queue of its query, takes batches, and settles them.

Everything here may be asked twice: a batch gives the same messages whenever it is asked for, and what is settled stays so. Opening ends
the owner before, which is what makes the older one of two drivers fail; so nothing is opened before it is known that checkpoint and
reservation belong together.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.doors.native.codec import Kind, answers, requests
from dovetail.errors import BatchRefused, DovetailError, Fenced, NoSuchQueue, NoSuchReservation
from dovetail.spark.behind import confirm
from dovetail.spark.shares import Share, Shares, beginning, complaint
from dovetail.spark.survey import Survey

log = logging.getLogger("dovetail.spark")

SAMPLE_MESSAGES = 64


@dataclass
class Held:
    """A reservation that is ours. While it is, nobody else changes it, so it need not be asked for again."""

    queue: int
    epoch: int
    last: int
    batches: dict[int, int]
    """Those that are open: number → messages."""


class Owner:
    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._reach = survey.reach
        self._namespace = survey.options.namespace
        self._name = survey.options.reservation
        self._held: dict[str, Held] = {}

    # Looking

    def waiting(self, queue: str, *, sure: bool = False) -> tuple[int, int]:
        """(the queue's id, how many of its messages can be had now), as far as the node knows; `sure`: also what only others know yet."""
        return self._reach.patiently(partial(self._waiting, queue, sure=sure))

    def _waiting(self, queue: str, *, sure: bool) -> tuple[int, int]:
        try:
            return self._counted(queue, sure=sure)
        except NoSuchQueue:
            # Dropped, or made anew since it was opened on this line: the name says which.
            self._reach.forget(self._namespace, queue)
            return self._counted(queue, sure=sure)

    def _counted(self, queue: str, *, sure: bool) -> tuple[int, int]:
        known = self._reach.open(self._namespace, queue)
        if sure:
            confirm(self._reach, self._survey.options, known)
        counted: answers.Counted = self._reach.line.ask(requests.About(Kind.COUNTS, known))
        return known, counted.visible

    def beginning(self, queue: str) -> Share:
        """Where a checkpoint that does not know the queue begins."""
        known, _ = self.waiting(queue)
        return beginning(known, self._facts(queue))

    def message_bytes(self, queues: Sequence[str]) -> float:
        """How large a message is, about: by those that are next."""
        count = size = 0
        for queue in queues:
            look: answers.Messages = self._reach.patiently(partial(self._look, queue))
            count += len(look.sequences)
            size += sum(map(len, look.bodies))
        return size / count if count else 1.0

    def _look(self, queue: str) -> answers.Messages:
        look: answers.Messages = self._reach.line.ask(requests.Peek(self._reach.open(self._namespace, queue), SAMPLE_MESSAGES))
        return look

    def _facts(self, queue: str) -> answers.Reservation | None:
        found: answers.Reservations = self._reach.patiently(partial(self._listed, queue))
        return next((one for one in found.reservations if one.name == self._name), None)

    def _listed(self, queue: str) -> Any:
        """Nothing is concluded from what a node says that is behind."""
        known = self._reach.open(self._namespace, queue)
        confirm(self._reach, self._survey.options, known)
        return self._reach.line.ask(requests.About(Kind.RESERVE_LIST, known))

    # Owning

    def own(self, queue: str, share: Share, *, done: bool) -> Held:
        """The reservation, opened by us; `share` is where the checkpoint stands, and `done` whether that micro-batch is."""
        if self.owns(queue, share):
            return self._held[queue]
        self._check(queue, share, self._facts(queue), done=done)
        opening = requests.Reservation(Kind.RESERVE_OPEN, share.queue, self._name)
        opened: answers.Reserving = self._reach.patiently(lambda: self._asked(queue, share.queue, opening))
        facts = self._facts(queue)
        # Until it was opened its owner before might still take something.
        self._check(queue, share, facts, done=done)
        if facts is None or facts.epoch != opened.epoch:
            raise self._ended(queue)
        held = self._held[queue] = Held(share.queue, facts.epoch, facts.last, dict(facts.batches))
        return held

    def owns(self, queue: str, share: Share) -> bool:
        return queue in self._held and self._held[queue].queue == share.queue

    def _check(self, queue: str, share: Share, facts: answers.Reservation | None, *, done: bool) -> None:
        wrong = complaint(share, facts, done=done)
        if wrong is None:
            return
        if facts is not None and facts.batches:
            wrong += f". `{shlex.join(['dovetail', 'queue', 'release', queue, self._name])}` gives back what is set aside"
        self._survey.lost(f"The reservation {self._name!r} of {queue!r} does not go on where the checkpoint stands: {wrong}")

    def take(self, queue: str, share: Share) -> list[tuple[int, int]]:
        """The batches of a share, set aside now or before: (number, messages), those without messages left out."""
        held = self.own(queue, share, done=False)
        for batch, most in share.wanted():
            if batch not in held.batches and batch > held.last:
                request = requests.Reserve(share.queue, self._name, held.epoch, batch, most)
                reserved: answers.Reserved = self._owned(queue, share.queue, request)
                held.batches[batch], held.last = reserved.messages, batch
        return [(batch, count) for batch in range(share.first, share.next) if (count := held.batches.get(batch, 0))]

    def settle(self, queue: str, share: Share) -> bool:
        """The share is in Spark's commit log, and with it all before it. Said again it asks nothing; whether there was something to ask."""
        held = self.own(queue, share, done=True)
        done = [batch for batch in held.batches if batch < share.next]
        if done:
            self._owned(queue, share.queue, requests.ReserveSettle(share.queue, self._name, held.epoch, max(done)))
            for batch in done:
                del held.batches[batch]
        return bool(done)

    def _owned(self, queue: str, known: int, request: requests.Request) -> Any:
        """The answer to what only the owner may ask."""
        try:
            return self._reach.patiently(partial(self._asked, queue, known, request))
        except (Fenced, NoSuchReservation):
            raise self._ended(queue) from None

    def _asked(self, queue: str, known: int, request: requests.Request) -> Any:
        if self._reach.open(self._namespace, queue) != known:
            self._reach.forget(self._namespace, queue)
            raise NoSuchQueue(f"The queue {queue!r} was dropped and made again")
        return self._reach.line.ask(request)

    def _ended(self, queue: str) -> Fenced:
        facts = self._facts(queue)
        which = f"The reservation {self._name!r} of {queue!r}"
        if facts is not None and facts.epoch:
            return Fenced(f"{which} was opened by another query or driver, so this one ends: a reservation has one owner, the last one")
        return Fenced(f"{which} was released by an operator, so this query ends: what it had set aside is back in the queue")


def settle(survey: Survey, shares: Shares) -> None:
    """For those who hear of a batch and are not its driver: a listener, a script behind its query. Under the epoch that the batch was
    planned with; where that has ended the driver sees to it when it goes on."""
    if shares.origin != survey.origin or shares.reservation != survey.options.reservation:
        return
    for name, share in shares.shares.items():
        if share.first < share.next:
            try:
                survey.reach.patiently(partial(_settle, survey, name, share))
            except (Fenced, BatchRefused, NoSuchReservation, NoSuchQueue) as error:
                log.info("%s: batch %d is settled when the query goes on: %s", name, share.next - 1, error)
            except DovetailError as error:
                log.warning("%s: batch %d could not be settled yet: %s", name, share.next - 1, error)


def _settle(survey: Survey, name: str, share: Share) -> None:
    if survey.reach.open(survey.options.namespace, name) == share.queue:
        survey.reach.line.ask(requests.ReserveSettle(share.queue, survey.options.reservation, share.epoch, share.next - 1))
