"""Draws shares over time as one SVG: the figure of docs/compute.md."""

from typing import TYPE_CHECKING

from bench.cases import Container, Load
from bench.truth import Trace, record

if TYPE_CHECKING:
    from bench.throttle import Bench

__all__ = ["draw"]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 300, 48, 40, 24
COLOURS = ("#1f77b4", "#d62728")
SECONDS = 9.0


def draw(bench: "Bench") -> str:
    """Two `burst` containers, 30 and 70: the second one sleeps between the third second and the
    sixth, and the first one borrows what it leaves."""
    busy = Load((1000,), per_sync=32)
    sleepy = Load((1000,), per_sync=32, idle_after_s=3.0, idle_s=3.0)
    trace = Trace()
    with bench.run((Container(30, (busy,), "burst"), Container(70, (sleepy,), "burst"))) as running:
        record(trace, bench.node, SECONDS + 0.5, 0.01)
    lines = [trace.windows(share.pids, 0.0, SECONDS) for share in running.shares]
    return _svg(lines)


def _x(second: float) -> float:
    return LEFT + second / SECONDS * (WIDTH - LEFT - 12)


def _y(percent: float) -> float:
    return HEIGHT - BOTTOM - percent / 100 * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, more: str = 'text-anchor="middle"') -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{text}</text>'


def _level(percent: int) -> str:
    y = _y(percent)
    line = f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>'
    return line + _text(LEFT - 6, y + 4, str(percent), 'text-anchor="end"')


def _svg(lines: list[list[float]]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
    parts = [
        head + 'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *(_level(percent) for percent in (0, 30, 70, 100)),
        *(_text(_x(second), HEIGHT - BOTTOM + 18, str(second)) for second in range(int(SECONDS))),
        _text((LEFT + WIDTH) / 2, HEIGHT - 6, "seconds"),
    ]
    for line, colour, name in zip(
        lines, COLOURS, ("burst, 30 percent", "burst, 70 percent, asleep from 3 to 6"), strict=True
    ):
        points = " ".join(
            f"{_x((index + 0.5) * 0.1):.1f},{_y(share):.1f}" for index, share in enumerate(line)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        place = LEFT + 8 if colour == COLOURS[0] else LEFT + 190
        parts.append(f'<text x="{place}" y="14" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
