"""Draws a picture as lines of a given width, for terminals, pipes and pictures alike."""

import textwrap
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from aliquot.top.picture import Line, Meter, NodePicture, Picture

__all__ = ["LEAST_WIDTH", "Drawing", "draw"]

LEAST_WIDTH = 52
"""Narrower terminals wrap."""
NOTES = 5
"""More notes than this would push the GPUs off the screen."""

GAP = "  "
MEMORY_TEXT, COMPUTE_TEXT = 11, 8
WIDE = (("POLICY", "policy", 11), ("PEAK", "peak", 8), ("REFUSED", "refused", 7))
"""Titles, attributes of a line, and widths."""
UUID_WIDTH = 40

HIGH, FULL = 0.75, 0.9
"""From which part of its cap on memory looks like a warning, and like an alarm."""


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    is_wide: bool = False
    is_plain: bool = False
    """Only characters of ASCII."""


@dataclass(frozen=True, slots=True)
class _Columns:
    name: int
    bar: int
    throttled: int
    more: tuple[tuple[str, str, int], ...]


def draw(picture: Picture, drawing: Drawing) -> list[Text]:
    """Lines that are never longer than the width."""
    columns = _columns(drawing)
    lines = [_heading(columns, drawing)] if picture.nodes else []
    for node in picture.nodes:
        lines += _node(node, columns, drawing, with_title=len(picture.nodes) > 1)
    lines.append(Text(_cut(picture.summary, drawing), style="dim"))
    lines += _notes(picture, drawing)
    lines += _waiting(picture, drawing)
    return lines


def _columns(drawing: Drawing) -> _Columns:
    width = max(LEAST_WIDTH, drawing.width)
    throttled = 9 if width >= 80 else 7
    fixed = MEMORY_TEXT + COMPUTE_TEXT + throttled + 5 * len(GAP)
    more: list[tuple[str, str, int]] = []
    for column in (*WIDE, ("UUID", "uuid", UUID_WIDTH)) if drawing.is_wide else ():
        # Names and bars keep enough room to be worth something.
        if fixed + column[2] + len(GAP) + 50 <= width:
            fixed += column[2] + len(GAP)
            more.append(column)
    free = width - fixed
    bar = max(4, min(30, free // 5))
    return _Columns(min(64, free - 2 * bar), bar, throttled, tuple(more))


def _heading(columns: _Columns, drawing: Drawing) -> Text:
    meter = columns.bar + len(GAP)
    cells = [
        _fit("GPU, CONTAINER" if columns.name >= 14 else "NAME", columns.name, drawing),
        _fit("MEMORY", meter + MEMORY_TEXT, drawing),
        _fit("COMPUTE", meter + COMPUTE_TEXT, drawing),
        ("THROTTLED" if columns.throttled >= 9 else "THR").rjust(columns.throttled),
        *(title.ljust(width) for title, _, width in columns.more),
    ]
    return Text(GAP.join(cells).rstrip(), style="bold dim")


def _node(
    node: NodePicture, columns: _Columns, drawing: Drawing, *, with_title: bool
) -> list[Text]:
    lines = [_line(line, columns, drawing) for line in node.lines]
    if with_title:
        title = Text(_fit(f"{node.name}: {node.summary}", drawing.width, drawing).rstrip())
        title.stylize("bold underline", 0, len(node.name))
        lines.insert(0, title)
    return lines


def _line(line: Line, columns: _Columns, drawing: Drawing) -> Text:
    style = "bold" if line.is_gpu else "dim italic" if line.is_planned else ""
    text = Text()
    name = line.name if line.is_gpu else f"  {line.name}"
    text.append(_fit(name, columns.name, drawing), style="bold red" if line.is_broken else style)
    text.append(GAP)
    text.append_text(_bar(line.memory, columns.bar, _memory_colour(line), drawing))
    text.append(GAP + line.memory.text.rjust(MEMORY_TEXT)[:MEMORY_TEXT] + GAP, style=style)
    text.append_text(_bar(line.compute, columns.bar, "cyan", drawing))
    text.append(GAP + line.compute.text.rjust(COMPUTE_TEXT)[:COMPUTE_TEXT] + GAP, style=style)
    is_throttled = line.throttled not in ("", "0%", "?", "planned")
    text.append(line.throttled.rjust(columns.throttled), style="yellow" if is_throttled else style)
    for _, attribute, width in columns.more:
        text.append(GAP + str(getattr(line, attribute)).ljust(width), style=style)
    text.rstrip()
    return text


def _memory_colour(line: Line) -> str:
    part = line.memory.filled or 0.0
    return "red" if part >= FULL else "yellow" if part >= HIGH else "green"


def _bar(meter: Meter, width: int, colour: str, drawing: Drawing) -> Text:
    """A filled part, an empty part, and a mark where the guarantee ends."""
    full, half, empty, mark = ("#", "-", "-", "|") if drawing.is_plain else ("━", "╾", "─", "┃")
    halves = round((meter.filled or 0.0) * width * 2)
    if meter.filled and halves == 0:
        halves = 1  # little is not nothing
    if drawing.is_plain:
        halves = 2 * ((halves + 1) // 2)
    cells = full * (halves // 2) + half * (halves % 2)
    bar = Text(cells, style=colour)
    bar.append(empty * (width - len(cells)), style="bright_black")
    if meter.mark is not None:
        at = min(width - 1, round(meter.mark * width))
        bar = bar[:at] + Text(mark, style="default") + bar[at + 1 :]
    return bar


def _notes(picture: Picture, drawing: Drawing) -> list[Text]:
    shown = picture.notes[:NOTES]
    lines = [
        Text(line, style="yellow") for note in shown for line in _wrap(f"! {note}", "  ", drawing)
    ]
    if len(picture.notes) > len(shown):
        rest = len(picture.notes) - len(shown)
        lines.append(Text(_cut(f"! and {rest} more notes; -o json has all", drawing), "yellow"))
    return lines


def _waiting(picture: Picture, drawing: Drawing) -> list[Text]:
    if not picture.waiting:
        return []
    lines = [Text(""), Text("WAITING", style="bold dim")]
    for each in picture.waiting:
        asks = f", asks for {each.asks}" if each.asks else ""
        for number, line in enumerate(_wrap(f"{each.name} for {each.waits}{asks}", "  ", drawing)):
            text = Text(line)
            if number == 0:
                text.stylize("bold", 0, len(each.name))
            lines.append(text)
        lines += [Text(line) for line in _wrap(f"  {each.reason}", "  ", drawing) if line.strip()]
    return lines


def _wrap(text: str, indent: str, drawing: Drawing) -> list[str]:
    width = max(LEAST_WIDTH, drawing.width)
    return textwrap.wrap(_printable(text), width, subsequent_indent=indent)


def _cut(text: str, drawing: Drawing) -> str:
    return _fit(text, max(LEAST_WIDTH, drawing.width), drawing).rstrip()


def _fit(text: str, width: int, drawing: Drawing) -> str:
    """Exactly so many cells; what is too long loses its middle, because ends tell pods apart."""
    text = _printable(text)
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    dots = "~" if drawing.is_plain else "…"
    front = (width - 1) * 2 // 3
    back = width - 1 - front
    tail = text[len(text) - back :]
    return set_cell_size(set_cell_size(text, front) + dots + tail, width)


def _printable(text: str) -> str:
    """Names and commands are other people's, and must not steer the terminal."""
    return "".join(each if each.isprintable() else " " for each in text)
