"""Rounds, their medians and ratios; and the picture, which is text that anybody can read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dovetail.lab.httpload import LoadFailed
from dovetail.lab.picture import dots
from dovetail.lab.scenario import Lab
from dovetail.lab.sqsload import OPERATIONS, SEND, TAKE, Load
from dovetail.lab.sqsrounds import Rounds, interleaved

pytestmark = pytest.mark.slow


class Played(Load):
    """A load whose results are known beforehand."""

    results: list[dict[str, Any]]

    async def played(self, operations: Sequence[str] = OPERATIONS) -> dict[str, dict[str, Any]]:
        return dict(zip(operations, self.results, strict=False))


def load_of(*rates: float, messages: int = 100, refused: int = 0) -> Played:
    made = Played(1, "u-{}", 100)
    facts: dict[str, Any] = {"messages": messages, "refused": refused, "refusal": "HTTP/1.1 400 no", "p50_us": 1.0, "p99_us": 2.0}
    facts |= {"server_cpu_us": 30.0, "client_cpu_share": 0.5}
    object.__setattr__(made, "results", [{"per_s": rate, **facts} for rate in rates])
    return made


async def test_ratios_are_medians_of_the_rounds_and_the_first_turn_only_warms_up(tmp_path: Path) -> None:
    rates = iter([(1, 1000), (20, 10), (300, 100), (80, 20)])

    async def turn(rounds: Rounds) -> None:
        ours, theirs = next(rates)
        assert await rounds.play("ours", load_of(ours, ours / 2)) == {SEND: ours, TAKE: ours / 2}
        await rounds.play("theirs", load_of(theirs, theirs))

    rounds = await interleaved(Lab(tmp_path), "all", turn, 3)
    assert next(rates, None) is None and rounds.ratios("ours", "theirs") == {SEND: 3, TAKE: 1.5}
    assert rounds.medians("ours")[SEND] == {"per_s": 80, "p50_us": 1, "p99_us": 2, "server_cpu_us": 30, "client_cpu_share": 0.5}
    await rounds.play("fill", load_of(7), (SEND,))
    assert list(rounds.medians("fill")) == [SEND]


async def test_a_load_that_was_refused_or_came_short_is_no_measure() -> None:
    with pytest.raises(LoadFailed, match="ours: 3 requests were refused, the first with: HTTP"):
        await Rounds().play("ours", load_of(1, refused=3))
    with pytest.raises(LoadFailed, match="ours: send ended after 60 of 100 messages"):
        await Rounds().play("ours", load_of(1, messages=60))
    await Rounds().play("ours", load_of(1, 1, messages=60), partial=True)


def test_a_picture_has_every_point_inside_its_frame_and_names_every_series() -> None:
    series = {"quiet & first": [(0.0, 0.5), (10.0, 12.0)], "behind": [(5.0, 30_000.0)]}
    drawn = ElementTree.fromstring(dots("a <title>", series, across="seconds"))
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in drawn.iter(f"{space}text")]
    assert {"a <title>", "● quiet & first", "● behind", "seconds", "1 ms", "10 s"} <= set(texts)
    points = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in drawn.iter(f"{space}circle")]
    assert len(points) == 3 and all(0 <= x <= 720 and 0 <= y <= 360 for x, y in points)
    assert points[2][1] < points[1][1] < points[0][1], "longer is higher"


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert ElementTree.fromstring(dots("none", {"empty": []}, across="seconds")).tag.endswith("svg")
