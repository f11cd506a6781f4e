"""Rounds of anything, and the pictures of rates: curves and bars."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from dovetail.lab.picture import bars, curves
from dovetail.lab.rounds import Notes, in_turns
from dovetail.lab.scenario import Lab

SVG = "{http://www.w3.org/2000/svg}"


async def test_ratios_are_medians_of_rounds_and_the_first_turn_only_warms_up(tmp_path: Path) -> None:
    rates = iter([(1, 1000), (20, 10), (300, 100), (80, 20)])

    async def turn(notes: Notes) -> None:
        ours, theirs = next(rates)
        notes.note("ours", {"per_s": ours, "seconds": 1})
        notes.note("theirs", {"per_s": theirs, "server_cpu_us": 2})

    notes = await in_turns(Lab(tmp_path), "all", turn, 3)
    assert next(rates, None) is None and notes.ratio("ours", "theirs") == 3
    assert (notes.medians("ours"), notes.medians("theirs")) == ({"per_s": 80}, {"per_s": 20, "server_cpu_us": 2})


async def test_what_was_not_played_has_no_median_and_no_ratio(tmp_path: Path) -> None:
    async def turn(notes: Notes) -> None:
        notes.note("ours", {"per_s": 1})

    notes = await in_turns(Lab(tmp_path, quick=True), "all", turn)
    assert notes.medians("theirs") is None and notes.ratio("ours", "theirs") is None is notes.ratio("theirs", "ours")


def test_curves_join_what_was_measured_and_dash_what_was_said() -> None:
    series = {"measured": [(1.0, 100.0), (4.0, 400.0), (64.0, 900.0)], "said & done": [(1.0, 50.0), (64.0, 450.0)]}
    drawn = ElementTree.fromstring(curves("a <title>", series, across="clients", up="per second", said={"said & done"}))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"a <title>", "● measured", "● said & done", "clients", "per second", "1", "4", "64", "1,000", "0"} <= set(texts)
    lines = list(drawn.iter(f"{SVG}polyline"))
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, True]
    points = [[tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] for line in lines]
    assert all(0 <= x <= 720 and 0 <= y <= 360 for several in points for x, y in several)
    assert points[0][2][1] < points[0][1][1] < points[0][0][1], "faster is higher"
    assert abs((points[0][1][0] - points[0][0][0]) * 3 - (points[0][2][0] - points[0][0][0])) < 1, "doublings are equally far apart"
    assert len(list(drawn.iter(f"{SVG}circle"))) == 3


def test_bars_stand_in_groups_and_a_series_keeps_its_colour() -> None:
    groups = {"one": {"ours": 10.0, "theirs": 5.0}, "two": {"theirs": 8.0, "the paper's": 2.0}}
    drawn = ElementTree.fromstring(bars("t", groups, across="sizes", up="per second", said={"the paper's"}))
    rectangles = list(drawn.iter(f"{SVG}rect"))[1:]
    heights = [float(one.attrib["height"]) for one in rectangles]
    assert [round(one / heights[0], 2) for one in heights] == [1, 0.5, 0.8, 0.2]
    assert rectangles[1].attrib["fill"] == rectangles[2].attrib["fill"] != rectangles[0].attrib["fill"]
    assert ["fill-opacity" in one.attrib for one in rectangles] == [False, False, False, True]


def test_pictures_of_nothing_are_pictures() -> None:
    for drawn in (curves("t", {}, across="a", up="u"), bars("t", {}, across="a", up="u"), curves("t", {"s": []}, across="a", up="u")):
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
