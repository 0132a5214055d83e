"""Shows views as tables: once, again and again on a terminal, or as a picture in a file."""

import io
import re
import signal
import sys
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from aliquot.errors import OperationError, UserError
from aliquot.protocol.view import ClusterView
from aliquot.top.drawing import Drawing, draw
from aliquot.top.picture import picture_of
from aliquot.top.selection import Selection, select
from aliquot.top.source import Fetch

__all__ = ["print_once", "watch", "write_svg"]

SVG_WIDTH = 100

_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def print_once(fetch: Fetch, wanted: Selection, *, is_wide: bool) -> int:
    console = Console(highlight=False)
    view = select(fetch(), wanted)
    for line in _lines(view, console, is_wide):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    if not view.nodes and not view.waiting:
        print("nothing matches; leave out a filter to see more", file=sys.stderr)
    return 0


def watch(fetch: Fetch, wanted: Selection, *, is_wide: bool, interval_s: float) -> int:
    """Until Ctrl-C, on the terminal's other screen."""
    console = Console(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        raise UserError(
            "--watch draws on a terminal, and the output is none; leave it out to see things once"
        )
    # Ends like Ctrl-C does, or the terminal would stay on its other screen.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    view = fetch()
    problem = ""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                lines = _lines(select(view, wanted), console, is_wide)
                live.update(_screen(lines, view, problem, console), refresh=True)
                time.sleep(interval_s)
                try:
                    view, problem = fetch(), ""
                except OperationError as error:
                    problem = str(error)  # it may come back, and what was seen is still there
    except KeyboardInterrupt:
        return 0


def write_svg(fetch: Fetch, wanted: Selection, path: Path, *, is_wide: bool) -> int:
    console = Console(
        record=True,
        width=SVG_WIDTH,
        file=io.StringIO(),
        highlight=False,
        force_terminal=True,
        color_system="truecolor",
    )
    for line in _lines(select(fetch(), wanted), console, is_wide):
        console.print(line, no_wrap=True)
    # A picture that loads fonts from elsewhere tells somebody who looks at it, and when.
    path.write_text(_FONTS.sub("", console.export_svg(title="aliquot top")))
    return 0


def _lines(view: ClusterView, console: Console, is_wide: bool) -> list[Text]:
    drawing = Drawing(console.width, is_wide, is_plain=console.options.ascii_only)
    return draw(picture_of(view, full_names=is_wide), drawing)


def _screen(lines: list[Text], view: ClusterView, problem: str, console: Console) -> Group:
    """As much as the terminal holds; the last line says what does not fit, or went wrong."""
    room = max(1, console.height - 1)
    at = time.strftime("%H:%M:%S", time.localtime(view.taken_at))
    last = Text(f"{at}  Ctrl-C ends", style="dim")
    if len(lines) > room:
        last = Text(f"{at}  {len(lines) - room} more lines; a filter or --sort helps", style="dim")
    if problem:
        last = Text(f"as of {at}: {problem}", style="red")
    last.truncate(console.width, overflow="ellipsis")
    return Group(*lines[:room], last)
