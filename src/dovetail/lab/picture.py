"""Pictures as SVG text: points in time, curves, bars. It knows nothing of what it shows.

    dots      times on a logarithmic scale over when they were seen
    curves    rates over a number that doubles from one point to the next
    bars      rates in groups, one bar for each series

What somebody else has said, and was not measured here, is dashed or pale. Text that is written by hand needs no library, diffs
well, and is read by every browser, in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 24, 56, 48
_COLOURS = ("#1b7f5c", "#c2512e", "#3867b8", "#8a5aa8", "#9a7d0a", "#5d6d7e")
_NAMES_PER_ROW, _ROW = 3, 16

Points = Sequence[tuple[float, float]]


def dots(title: str, series: Mapping[str, Points], *, across: str) -> str:
    """Each series' points (seconds across, milliseconds up), in its own colour and named above."""
    everything = [point for points in series.values() for point in points]
    # A multiple of four, so that the four steps of the scale are whole numbers.
    across_max = 4.0 * max(1, math.ceil(max((x for x, _ in everything), default=0.0) / 4))
    low = math.floor(math.log10(max(0.1, min((y for _, y in everything), default=1.0))))
    high = max(low + 1, math.ceil(math.log10(max(1.0, max((y for _, y in everything), default=1.0)))))

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log10(max(y, 10.0**low)) - low) / (high - low)
        return _LEFT + x / across_max * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    lines = _begun(title)
    for power in range(low, high + 1):
        _, y = place(0, 10.0**power)
        lines.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{_told(10.0**power)}</text>')
    for step in range(5):
        x, _ = place(across_max * step / 4, 1)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle" fill="#555555">{across_max * step / 4:g}</text>')
    lines.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 10}" text-anchor="end" fill="#555555">{escape(across)}</text>')
    for index, (name, points) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        lines.append(f'<text x="{_LEFT + index * 300}" y="42" fill="{colour}">● {escape(name)}</text>')
        lines.append(f'<g fill="{colour}" fill-opacity="0.7">')
        lines += ['<circle cx="{:.1f}" cy="{:.1f}" r="2"/>'.format(*place(x, y)) for x, y in points]
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _told(ms: float) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def curves(title: str, series: Mapping[str, Points], *, across: str, up: str, said: Collection[str] = ()) -> str:
    """Each series' points, (count, rate), joined; the counts on a scale of powers of two, the rates from zero on."""
    counts = sorted({x for points in series.values() for x, _ in points}) or [1.0]
    top = _top_of(y for points in series.values() for _, y in points)
    frame = _Frame(title, list(series), top, up)
    low, high = math.log2(counts[0]), math.log2(counts[-1])

    def x_of(count: float) -> float:
        return _LEFT + (math.log2(count) - low) / max(1.0, high - low) * (WIDTH - _LEFT - _RIGHT)

    for count in counts:
        frame.under(x_of(count), f"{count:g}")
    frame.across(across)
    for index, (name, points) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [(x_of(x), frame.y_of(y)) for x, y in points]
        dash = ' stroke-dasharray="5 4"' if name in said else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        frame.lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if name not in said:
            frame.lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return frame.ended()


def bars(title: str, groups: Mapping[str, Mapping[str, float]], *, across: str, up: str, said: Collection[str] = ()) -> str:
    """A group of bars for each entry; a series has one colour in all groups and need not be in each of them."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    frame = _Frame(title, names, _top_of(value for group in groups.values() for value in group.values()), up)
    room = (WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    for number, (label, group) in enumerate(groups.items()):
        width = room * 0.8 / max(1, len(group))
        frame.under(_LEFT + room * (number + 0.5), label)
        for at, (name, value) in enumerate(group.items()):
            index = names.index(name)
            x, y = _LEFT + room * (number + 0.1) + width * at, frame.y_of(value)
            pale = ' fill-opacity="0.4"' if name in said else ""
            frame.lines.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" height="{HEIGHT - _BOTTOM - y:.1f}" '
                f'fill="{_COLOURS[index % len(_COLOURS)]}"{pale}/>'
            )
    frame.across(across)
    return frame.ended()


class _Frame:
    """Title, names in their colours, a scale of rates from zero up, and room for what is drawn."""

    def __init__(self, title: str, names: Sequence[str], top: float, up: str) -> None:
        self.lines = _begun(title)
        self._top = top
        rows = -(-len(names) // _NAMES_PER_ROW)
        self._ceiling = _TOP + _ROW * max(0, rows - 1) + 8
        for index, name in enumerate(names):
            x, y = _LEFT + index % _NAMES_PER_ROW * 210, 42 + index // _NAMES_PER_ROW * _ROW
            self.lines.append(f'<text x="{x}" y="{y}" fill="{_COLOURS[index % len(_COLOURS)]}">● {escape(name)}</text>')
        for step in range(5):
            height = self.y_of(top * step / 4)
            self.lines.append(f'<line x1="{_LEFT}" y1="{height:.1f}" x2="{WIDTH - _RIGHT}" y2="{height:.1f}" stroke="#dddddd"/>')
            told = f"{top * step / 4:,.0f}"
            self.lines.append(f'<text x="{_LEFT - 8}" y="{height + 4:.1f}" text-anchor="end" fill="#555555">{told}</text>')
        self.lines.append(f'<text x="{_LEFT}" y="{HEIGHT - 10}" fill="#555555">{escape(up)}</text>')

    def y_of(self, rate: float) -> float:
        return HEIGHT - _BOTTOM - rate / self._top * (HEIGHT - self._ceiling - _BOTTOM)

    def under(self, x: float, label: str) -> None:
        self.lines.append(f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle" fill="#555555">{escape(label)}</text>')

    def across(self, text: str) -> None:
        self.lines.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 10}" text-anchor="end" fill="#555555">{escape(text)}</text>')

    def ended(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def _begun(title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" fill="#222222">{escape(title)}</text>',
    ]


def _top_of(values: Iterable[float]) -> float:
    """The end of the scale: 1, 2, 4, 6 or 8 times a power of ten, so that its four steps are round."""
    most = max(values, default=1.0) or 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= most)
