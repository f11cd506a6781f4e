"""The code is tied to the specification: what the real core answers, in random logs and in real stores, is what spec/Replay.tla says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import dovetail
from dovetail.core import settling
from dovetail.core.operation import Head
from dovetail.core.state import State
from dovetail.errors import DovetailError
from tests.core.test_agreement import _without_the_fence
from tests.spec import recorded, replay
from tests.spec.recorded import Plain, Recorder, disagreement, of_generator, tampered, through_the_core
from tests.spec.test_models import SPEC, check

KINDS: tuple[dict[str, bool], ...] = ({}, {"shared": True, "leaving": True}, {"shared": True, "silence": True, "renew": True})
LIES = ("a completed message is delivered again", "a receipt of an old delivery is accepted")
CONSTANTS = {
    "Without": "nothing",
    "Silence": replay.SILENCE,
    "StepMost": replay.STEP_MOST,
    "CloseAfter": replay.CLOSE_AFTER,
    "ResultsKept": replay.RESULTS_KEPT,
}


def ask_tlc(runs: Sequence[Sequence[Any]], breaks: str | None = None) -> Any:
    return check.check(check.Run("trace", "Trace", CONSTANTS, ["AsRecorded"], breaks=breaks, modules={"Recorded": recorded.module(runs)}))


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_the_fold_has_the_operators_of_the_specification_in_their_order() -> None:
    operators = re.findall(r"^(\w+)(?:\([^)]*\))? +==", (SPEC / "Replay.tla").read_text(encoding="utf-8"), re.MULTILINE)
    ours = re.findall(r"^def (\w+)", Path(replay.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    # What Python has already, or says in capitals; and what only Python has to say.
    operators = [snake(name) for name in operators if name not in ("Keeps", "None", "Nobody", "Min", "Max", "Sorted", "The")]
    assert [name for name in ours if name != "with_lane"] == operators


@pytest.mark.parametrize("kind", range(3), ids=["one writer", "several writers", "writers that fall silent and open anew"])
def test_what_the_core_answers_is_what_the_specification_says(kind: int) -> None:
    for seed in range(12):
        steps = of_generator(Plain(seed, **KINDS[kind]), 60)
        assert disagreement(steps) is None, f"seed {seed}: {disagreement(steps)}"


@pytest.mark.slow
def test_tlc_takes_recorded_logs_for_behaviours_of_the_specification() -> None:
    runs = [of_generator(Plain(100 + seed, **kind), 40) for seed in range(2) for kind in KINDS]
    verdict = ask_tlc(runs)
    assert verdict.broken is None, verdict.output[-6000:]
    assert verdict.distinct == sum(len(steps) + 1 for steps in runs)


@pytest.mark.parametrize("how", LIES)
def test_a_log_with_a_lie_in_it_is_refused(how: str) -> None:
    told = 0
    for seed in range(12):
        lie = tampered(of_generator(Plain(seed, **KINDS[seed % 3]), 60), how, Random(seed))
        if lie is not None:
            assert disagreement(lie) is not None
            told += 1
    assert told >= 6


@pytest.mark.slow
@pytest.mark.parametrize("how", LIES)
def test_tlc_refuses_a_log_with_a_lie_in_it(how: str) -> None:
    lies = (tampered(of_generator(Plain(seed), 40), how, Random(seed)) for seed in range(12))
    lie = next(steps for steps in lies if steps is not None)
    assert ask_tlc([lie], breaks="AsRecorded").broken == "AsRecorded"


def test_a_core_without_the_fence_is_not_what_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the same logs, through a core that does not look at delivery numbers."""
    logs = []
    for seed in range(6):
        generator = Plain(seed)
        generator.run(60)
        logs.append(generator.entries)
    monkeypatch.setattr(settling, "_delivered", _without_the_fence)
    assert any(disagreement(through_the_core(entries)) is not None for entries in logs)


async def live_a_little(node: Any, seed: int) -> None:
    """What users do, with most of what may go wrong: leases that run out, old receipts, batches, delays, numbers, complete-and-send."""
    orders, done = await node.queue("orders", lease_s=0.02), await node.queue("done")
    producer, random = await node.producer(f"till {seed}"), Random(seed)
    old = []
    for turn in range(40):
        kind = random.randrange(6)
        if kind < 2:
            await orders.send_many([b"%d.%d" % (turn, i) for i in range(random.randrange(1, 6))])
        elif kind == 2:
            await producer.send(orders, b"numbered %d" % turn)
        else:
            for message in await orders.receive(max=4):
                old.append(message)
                # A lease that ran out meanwhile may be somebody else's.
                with contextlib.suppress(DovetailError):
                    await settle_somehow(message, done, random.randrange(5))
        if old and random.random() < 0.3:
            with contextlib.suppress(DovetailError):
                await random.choice(old).complete()


async def settle_somehow(message: Any, done: Any, how: int) -> None:
    if how == 0:
        await message.complete()
    elif how == 1:
        await message.complete_and_send(done, b"did " + message.body)
    elif how == 2:
        await message.requeue()


class Listening:
    """Recorders of all states that are applied to, one for each: a node, and each of its lives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: dict[int, tuple[State, Recorder]] = {}
        apply = State.apply

        def applied(state: State, after: int, head: Head, operations: Any, addresses: Any, log_stamp: int | None = None) -> Any:
            began = state.position == 0
            made = apply(state, after, head, operations, addresses, log_stamp)
            if began:
                self.heard[id(state)] = (state, Recorder())
            if id(state) in self.heard:
                self.heard[id(state)][1].note(state, after, head, operations, addresses, log_stamp, made)
            return made

        monkeypatch.setattr(State, "apply", applied)

    def judge(self, steps_min: int) -> None:
        assert self.heard
        for _, recorder in self.heard.values():
            said = disagreement(recorder.steps)
            assert said is None, said
        assert max(len(recorder.steps) for _, recorder in self.heard.values()) >= steps_min


@pytest.mark.parametrize("store", ["memory:", "local:"])
async def test_what_a_real_node_does_is_what_the_specification_says(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry that the node applies, and in its second life every one that it replays."""
    listening = Listening(monkeypatch)
    for life in range(1 if store == "memory:" else 2):
        async with dovetail.open(store if store == "memory:" else f"local:{tmp_path}") as node:
            await live_a_little(node, life)
    listening.judge(60)
