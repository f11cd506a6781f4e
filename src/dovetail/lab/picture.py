"""A picture of points as SVG text: times on a logarithmic scale over when they were seen. It knows nothing of what it shows.

Text that is written by hand needs no library, diffs well, and is read by every browser, in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 24, 56, 48
_COLOURS = ("#1b7f5c", "#c2512e", "#3867b8", "#8a5aa8")

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

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" fill="#222222">{escape(title)}</text>',
    ]
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
