"""What the user sees: a live table on a terminal, a plain log elsewhere, and the summary."""

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from simcluster.demo.cast import Part
from simcluster.demo.promises import Promise

__all__ = ["Screen", "summary"]

Readings = Callable[[], dict[str, tuple[int, float]]]
"""Bytes and percent, by pod."""

SHORTEST_BAR, LONGEST_BAR, BESIDE_BARS = 4, 20, 68
"""Columns of each of the two bars, and of everything else in the table."""
LINES = 9
WIDTH = 118
"""Of the plain log and of pictures; a terminal has its own."""
GIB = 1 << 30
_STYLES = {"Running": "green", "Pending": "yellow", "Succeeded": "dim", "Failed": "red"}

# As rich makes it, but with the fonts of whoever looks: nothing is loaded from elsewhere.
_PICTURE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
 font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass(slots=True)
class _Row:
    part: Part
    phase: str = "Pending"
    gpu: str = ""
    reason: str = ""


class Screen:
    """Told what happens by the story; looks up the figures itself while it is live."""

    def __init__(self, console: Console, picture: Path | None = None) -> None:
        self.readings: Readings = dict
        self._console = console
        self._picture = picture
        self._guard = threading.Lock()
        self._began_s = time.monotonic()
        self._rows: dict[str, _Row] = {}
        self._lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console,
                get_renderable=lambda: self.render(console.width),
                refresh_per_second=8,
            )

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    # What happens.

    def say(self, text: str) -> None:
        when = f"{time.monotonic() - self._began_s:5.1f} s"
        with self._guard:
            self._lines.append((when, text))
        if not self._live:
            self._console.print(when, text, sep="  ", highlight=False, markup=False, soft_wrap=True)

    def add(self, part: Part) -> None:
        with self._guard:
            self._rows[part.name] = _Row(part)

    def wait(self, name: str, reason: str) -> None:
        self._rows[name].reason = reason

    def run(self, name: str, gpu: int) -> None:
        row = self._rows[name]
        row.phase, row.gpu, row.reason = "Running", str(gpu), ""

    def end(self, name: str, phase: str) -> None:
        self._rows[name].phase = phase

    def picture(self) -> None:
        """Draws the table of this moment, if a picture is wanted."""
        if self._picture:
            console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
            console.print(self.render(WIDTH))
            text = console.export_svg(title="aliquot demo", code_format=_PICTURE)
            self._picture.write_text(text)

    # What is drawn.

    def render(self, width: int) -> RenderableType:
        readings = self.readings()
        bar = max(SHORTEST_BAR, min((width - BESIDE_BARS) // 2, LONGEST_BAR))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("pod", "phase", "GPU", "memory", "of asked", "compute", "of asked", "policy"):
            justify: Literal["left", "right"] = "right" if name == "of asked" else "left"
            table.add_column(name, no_wrap=True, justify=justify)
        with self._guard:
            rows, lines = list(self._rows.values()), list(self._lines)
        for row in rows:
            table.add_row(*_cells(row, readings.get(row.part.name), bar))
        told = Table.grid(padding=(0, 2))
        for index, (when, text) in enumerate(lines, 1):
            told.add_row(when, Text(text, "bold" if index == len(lines) else ""))
        waits = [Text(f"{each.part.name} waits: {each.reason}", "yellow") for each in rows]
        reasons = [text for text, each in zip(waits, rows, strict=True) if each.reason]
        return Group(table, *reasons, Text(), told)


def _cells(row: _Row, reading: tuple[int, float] | None, bar: int) -> list[RenderableType]:
    part = row.part
    cells: list[RenderableType] = [
        Text(part.name, "bold"),
        Text(row.phase, _STYLES.get(row.phase, "")),
        row.gpu,
    ]
    if row.phase != "Running" or reading is None:
        asked = f"{part.memory_gib} GiB", f"{part.compute_percent} %"
        return [*cells, "", asked[0], "", asked[1], part.policy]
    used_bytes, percent = reading
    return [
        *cells,
        _bar(bar, used_bytes / part.memory_bytes, 1.0),
        f"{used_bytes / GIB:.1f} of {part.memory_gib} GiB",
        _bar(bar, percent / 100.0, part.compute_percent / 100.0),
        f"{percent:.1f} of {part.compute_percent} %",
        part.policy,
    ]


def _bar(length: int, filled: float, mark: float) -> Text:
    """Green up to the mark, yellow beyond it; the mark is what was asked for."""
    cells, edge = round(filled * length), round(mark * length)
    bar = Text()
    for place in range(length):
        if place < cells:
            bar.append("━", "green" if place < edge else "yellow")
        else:
            bar.append("┼" if place == edge else "─", "bright_black")
    return bar


def summary(kept: Sequence[Promise]) -> Table:
    table = Table(title="What was promised, and what the simulator's account says")
    for name in ("pod", "promise", "asked"):
        table.add_column(name, no_wrap=True)
    table.add_column("got", overflow="fold")
    table.add_column("error", justify="right", no_wrap=True)
    table.add_column("kept?", no_wrap=True)
    for each in kept:
        verdict = Text("kept", "green") if each.kept else Text("BROKEN", "bold red")
        table.add_row(each.pod, each.what, each.asked, each.got, each.error, verdict)
    return table
