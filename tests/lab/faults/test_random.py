"""Checkers against brute force, on many small random histories: they say the same, or, where they may say less, never more."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import permutations
from random import Random
from typing import Any

from dovetail.lab.faults.checkers import fencing, fifo, group_order, linear, total_queue
from dovetail.lab.faults.history import FOREVER, Call
from tests.lab.faults.calls import NEVER, call, complete, receive, send


def times(chance: Random, count: int) -> list[tuple[int, int]]:
    """Intervals with different ends, some of which overlap."""
    points = chance.sample(range(1, 200), 2 * count)
    spans = []
    for _ in range(count):
        began = points.pop(0)
        later = sorted(point for point in points if point > began)
        ended = later[min(chance.choice((0, 0, 1, 2, 4)), len(later) - 1)] if later else began + 200
        if ended in points:
            points.remove(ended)
        spans.append((began, ended))
    return spans


def queue_step(state: Any, one: Call) -> Iterable[Hashable]:
    """A queue as a tuple of bodies: the model that the bad patterns are held against."""
    if one.verb == "send":
        return ((*state, one.asked["body"]),)
    if not one.ok:
        return (state[1:],) if state else (state,)
    messages = one.told["messages"]
    if not messages:
        return () if state else (state,)
    return (state[1:],) if state and state[0] == messages[0]["body"] else ()


def test_the_bad_patterns_are_all_there_are() -> None:
    accepted = rejected = 0
    for seed in range(4000):
        chance = Random(seed)
        bodies = "abcd"[: chance.randrange(1, 5)]
        spans = times(chance, chance.randrange(2, 8))
        made = []
        todo = list(bodies)
        for began, ended in sorted(spans):
            if todo and chance.random() < 0.55:
                made.append(send(todo.pop(0), began, ended))
            else:
                got = [(chance.choice(bodies), 1)] if chance.random() < 0.75 else []
                made.append(receive(began, ended, *got, delete=True))
        wanted = linear.linearizable(made, (), queue_step)
        assert fifo.check(made).held == wanted, (seed, made)
        accepted, rejected = accepted + wanted, rejected + (not wanted)
    assert accepted > 500 and rejected > 500


def test_with_unknown_outcomes_no_history_is_rejected_that_could_have_been() -> None:
    rejected = wrong = 0
    for seed in range(3000):
        chance = Random(seed)
        made = []
        todo = list("abc")
        for began, ended in sorted(times(chance, chance.randrange(2, 7))):
            end = NEVER if chance.random() < 0.25 else ended
            if todo and chance.random() < 0.5:
                made.append(send(todo.pop(0), began, end))
            else:
                got = [(chance.choice("abc"), 1)] if chance.random() < 0.75 and end != NEVER else []
                made.append(receive(began, end, *got, delete=True))
        wanted = linear.linearizable(made, (), queue_step)
        held = fifo.check(made).held
        assert held or not wanted, (seed, made)
        rejected, wrong = rejected + (not held), wrong + (not wanted)
    assert rejected > 0.9 * wrong > 200, "what it lets pass for want of knowledge is the exception"


def test_registers_are_judged_as_by_trying_every_order() -> None:
    def holds(order: tuple[Call, ...]) -> bool:
        value = None
        for index, one in enumerate(order):
            if any(later.ended < one.began for later in order[index + 1 :]):
                return False
            if one.verb == "write":
                value = one.asked["value"]
            elif one.told["value"] != value:
                return False
        return True

    verdicts = []
    for seed in range(800):
        chance = Random(seed)
        made = [
            call("write", began, ended, register="r", value=chance.randrange(3))
            if chance.random() < 0.5
            else call("read", began, ended, told={"value": chance.choice((None, 0, 1, 2))}, register="r")
            for began, ended in times(chance, chance.randrange(1, 6))
        ]
        verdicts.append(linear.check(made).held)
        assert verdicts[-1] == any(map(holds, permutations(made))), (seed, made)
    assert 100 < sum(verdicts) < 700


def test_lost_and_unexpected_are_what_sets_say() -> None:
    for seed in range(500):
        chance = Random(seed)
        bodies = [f"{at}" for at in range(chance.randrange(1, 9))]
        fates = {body: chance.choice(("ok", "ok", "fail", "info")) for body in bodies}
        made = [
            send(body, 2 * at, NEVER if fates[body] == "info" else 2 * at + 1, at, fail=fates[body] == "fail")
            for at, body in enumerate(bodies)
        ]
        came = {body for body in bodies if chance.random() < 0.7}
        verdict = total_queue.check([*made, receive(100, 101, *[(body, int(body)) for body in came])])
        lost = {body for body in bodies if fates[body] == "ok"} - came
        unexpected = {body for body in came if fates[body] == "fail"}
        assert verdict.held == (not lost and not unexpected)
        assert (verdict.figures["lost"], verdict.figures["unexpected"]) == (len(lost), len(unexpected))
        assert sum(verdict.figures.get(f"lost {part}", 0) for part in ("at the beginning", "in the middle", "at the end")) == len(lost)


def lives(chance: Random, lease: int, fenced: bool) -> list[Call]:
    """A queue with one message in true time, seen by clients with some uncertainty. Not fenced: anybody may get it, any receipt counts."""
    made, now, receives, held_until, done = [], 0, 0, 0, False
    for _ in range(chance.randrange(2, 9)):
        now += chance.randrange(1, lease)
        before, after = now - chance.randrange(3), now + chance.randrange(3)
        if chance.random() < 0.6:
            if (now >= held_until and not done) or not fenced:
                receives, held_until = receives + 1, now + lease
                made.append(receive(before, after, ("a", 1, receives), lease_ms=lease, process=len(made)))
        elif receives:
            use = receives if chance.random() < 0.5 else chance.randrange(1, receives + 1)
            counts = (use == receives and not done) or not fenced
            done = done or counts
            made.append(complete("a", f"a-{use}", before, after, done=counts))
        now += 3
    return made


def test_a_fenced_queue_is_never_accused_and_one_without_fences_often_is() -> None:
    assert all(fencing.check(lives(Random(seed), 20, True), slack_ms=0).held for seed in range(3000))
    assert sum(not fencing.check(lives(Random(seed), 20, False), slack_ms=0).held for seed in range(300)) > 150


def test_groups_are_judged_as_by_looking_at_every_pair() -> None:
    def naive(made: list[Call]) -> bool:
        done = {one.asked["body"]: one.began for one in made if one.verb == "complete"}
        for one in made:
            if one.verb == "receive":
                taken = [message["sequence"] for message in one.told["messages"]]
                if taken != sorted(taken):
                    return False
                for sequence in taken:
                    for earlier in set(seen(made)).difference(taken):
                        if earlier < sequence and done.get(f"{earlier}", FOREVER) > one.ended:
                            return False
        return True

    def seen(made: list[Call]) -> list[int]:
        return [message["sequence"] for one in made if one.verb == "receive" for message in one.told["messages"]]

    verdicts = []
    for seed in range(2000):
        chance = Random(seed)
        count = chance.randrange(1, 6)
        made = [send(f"{at}", at, at + 1, at, group="g") for at in range(1, count + 1)]
        now = 10
        for body in range(1, count + 1):
            if chance.random() < 0.2:
                continue
            if body > 1 and made[-1].verb == "receive" and chance.random() < 0.4:
                last = made.pop()
                more = {"body": f"{body}", "sequence": body, "receives": 1, "receipt": f"{body}-1"}
                told = [*last.told["messages"], more]
                made.append(last._replace(told={"messages": told if chance.random() < 0.9 else told[::-1]}))
                continue
            made.append(receive(now, now + 1, (f"{body}", body), process=body))
            if chance.random() < 0.85:
                at = now + chance.choice((2, 2, 2, 30))
                made.append(complete(f"{body}", f"{body}-1", at, at + 1))
            now += 4
        verdicts.append(group_order.check(made).held)
        assert verdicts[-1] == naive(made), (seed, made)
    assert 300 < sum(verdicts) < 1800
