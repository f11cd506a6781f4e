"""Putting rows by under a stage, from a task: records leave while the next ones are made, and what was cut off is sent again.

The records of a stage are numbered, so one whose answer was lost is sent again, over whatever connection, and is there once. Those that
were not answered yet are kept here until they are; there are few of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from dovetail.doors.native.codec import answers, requests
from dovetail.errors import DovetailError, NoSuchQueue, NumberRefused, Unavailable
from dovetail.spark import rows
from dovetail.spark.reach import Attempts, Reach
from dovetail.spark.rows import Messages
from dovetail.spark.sinkoptions import SinkOptions

UNDER_WAY = 6
"""Records of about 256 KiB: enough for the node to sync one while others are on their way."""
NAME_BYTES = 16


class Staging:
    """One attempt of one task. Its stage has a name that no other has: two attempts never share one, whatever Spark calls them."""

    def __init__(self, options: SinkOptions, reach: Reach) -> None:
        self.stage = os.urandom(NAME_BYTES)
        self.rows = 0
        self._options = options
        self._reach = reach
        self._queues: dict[str, int] = {}
        self._last = 0
        self._unanswered: dict[int, tuple[str, bytes]] = {}
        """Number of a record → its queue, and its bytes."""
        self._sent: dict[int, int] = {}
        """Number of a frame on this line → number of the record in it."""

    def add(self, queue: str, messages: Messages) -> None:
        known = self._queues.get(queue)
        if known is None:
            self.finish()  # On a line on which nothing is under way the next answer is to what is asked next.
            known = self._queues[queue] = self._reach.patiently(partial(self._open, queue))
        for piece in rows.frames(messages):
            while len(self._unanswered) >= UNDER_WAY:
                self._go_on()
            self._last += 1
            self._unanswered[self._last] = (queue, rows.record(known, piece))
            self.rows += len(piece.bodies)
            self._try(partial(self._send, self._last))

    def finish(self) -> None:
        """Everything is durable."""
        while self._unanswered:
            self._go_on()

    def give_up(self) -> None:
        """Best effort: what stays is given up by the node a day later."""
        try:
            self._reach.drop()
            if self._last:
                self._reach.line.ask(requests.Unstage([self.stage]))
        except DovetailError:
            pass

    def _go_on(self) -> None:
        self._try(self._receive)

    def _try(self, step: Any) -> None:
        """A step; where the connection broke or there was no room, all that was not answered is sent again, for as long as it takes."""
        try:
            step()
            return
        except DovetailError as error:
            failed: DovetailError = error
        attempts = self._reach.attempts()
        while True:
            self._wait(attempts, failed)
            try:
                self._send_all()
                return
            except DovetailError as error:
                failed = error

    def _wait(self, attempts: Attempts, error: DovetailError) -> None:
        # Behind a record that found no room the next ones come out of turn: that is no fault of theirs.
        self._reach.drop(error)
        self._sent.clear()
        attempts.failed(error, again=isinstance(error, NumberRefused) and len(self._unanswered) > 1)

    def _open(self, name: str) -> int:
        namespace = self._options.namespace
        try:
            return self._reach.open(namespace, name)
        except NoSuchQueue:
            if not self._options.create:
                raise
        self._reach.line.ask(requests.Declare(name, {}, namespace))
        return self._reach.open(namespace, name)

    def _send_all(self) -> None:
        """On a new line: the queues are opened first, then everything leaves in its order."""
        for queue in self._queues:
            if self._reach.open(self._options.namespace, queue) != self._queues[queue]:
                raise NoSuchQueue(f"The queue {queue!r} was dropped and made again while it was written to")
        for number in self._unanswered:
            self._send(number)

    def _send(self, number: int) -> None:
        queue, data = self._unanswered[number]
        if not self._reach.has_open(self._options.namespace, queue):
            raise Unavailable("the line was made anew")
        self._sent[self._reach.line.send(requests.Stage(self.stage, data, number))] = number

    def _receive(self) -> None:
        frame, answer = self._reach.line.receive()
        assert isinstance(answer, answers.Done)
        del self._unanswered[self._sent.pop(frame)]


def publish(reach: Reach, stages: Sequence[bytes], owner: bytes, batch: int) -> answers.Published:
    """Idempotent by owner and batch, so it is asked for until there is an answer."""

    def ask() -> answers.Published:
        answer: answers.Published = reach.line.ask(requests.Publish(stages, owner, batch))
        return answer

    return reach.patiently(ask)


def unstage(reach: Reach, stages: Sequence[bytes]) -> None:
    if stages:
        reach.patiently(lambda: reach.line.ask(requests.Unstage(stages)))
