"""What the demo shows: a plain log without a terminal, a table with one, and the summary."""

import io
import re
from pathlib import Path

from rich.console import Console

from simcluster.demo import promises
from simcluster.demo.cast import CHAT, RENDER, TRAIN
from simcluster.demo.screen import Screen, summary

GIB = 1 << 30


def log() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=118), file


def drawn(screen: Screen, width: int = 118) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(screen.render(width))
    return file.getvalue()


def test_without_a_terminal_every_step_is_one_plain_line_as_it_happens():
    console, file = log()
    with Screen(console) as screen:
        screen.say("train arrives [and] asks")
        assert re.fullmatch(r" *\d+\.\d s  train arrives \[and\] asks\n", file.getvalue())
        screen.add(TRAIN)
        long = "a reason that is longer than any line of the log could be, " * 4 + "is whole"
        screen.say(long)
    assert len(file.getvalue().splitlines()) == 2
    assert file.getvalue().endswith(f"  {long}\n")
    assert "\x1b" not in file.getvalue()


def test_the_table_has_figures_of_who_runs_and_the_reason_of_who_waits():
    screen = Screen(log()[0])
    for part in (TRAIN, CHAT, RENDER):
        screen.add(part)
    screen.run("train", 0)
    screen.run("chat", 1)
    screen.wait("render", "no room")
    screen.readings = lambda: {"train": (10 * GIB, 98.2), "chat": (30 * GIB, 50.0)}
    rows = {line.split()[0]: line for line in drawn(screen).splitlines() if line.strip()}
    assert re.search(r"Running\s+0\s.*10\.0 of 40 GiB.*98\.2 of 60 %", rows["train"])
    assert re.search(r"Running\s+1\s.*30\.0 of 30 GiB.*50\.0 of 50 %", rows["chat"])
    assert "render waits: no room" in drawn(screen)
    assert re.search(r"Pending\s+24 GiB\s+30 %", drawn(screen))


def test_a_narrow_terminal_gets_shorter_bars_and_every_figure():
    screen = Screen(log()[0])
    screen.add(TRAIN)
    screen.run("train", 0)
    screen.readings = lambda: {"train": (10 * GIB, 98.2)}
    row = drawn(screen, 80).splitlines()[1]
    assert len(row) <= 80
    assert re.search(r"10\.0 of 40 GiB.*98\.2 of 60 % +burst", row)
    assert row.count("━") < drawn(screen).splitlines()[1].count("━")


def test_who_has_started_waits_no_more_and_who_has_ended_has_no_figures():
    screen = Screen(log()[0])
    screen.add(RENDER)
    screen.wait("render", "no room")
    screen.run("render", 1)
    assert "no room" not in drawn(screen)
    screen.end("render", "Succeeded")
    screen.readings = lambda: {"render": (10 * GIB, 30.0)}
    assert "Succeeded" in drawn(screen)
    assert "10.0 of" not in drawn(screen)


def test_the_summary_tells_broken_promises_from_kept_ones():
    console, file = log()
    console.print(
        summary(
            [
                promises.keeps_share("train", "compute share", 60, 60.2, 1),
                promises.keeps_share("batch", "compute share", 20, 25.0, 1),
            ]
        )
    )
    text = file.getvalue()
    assert re.search(r"train .*60 % .*60\.20 % .*\+0\.20 points .*kept", text)
    assert re.search(r"batch .*20 % .*25\.00 % .*\+5\.00 points .*BROKEN", text)


def test_a_picture_is_made_of_the_table_and_loads_nothing_from_elsewhere(tmp_path: Path):
    screen = Screen(log()[0], tmp_path / "demo.svg")
    screen.add(TRAIN)
    screen.run("train", 0)
    screen.picture()
    text = (tmp_path / "demo.svg").read_text()
    assert "train" in text
    assert not re.findall(r"url\((?!#)", text)
    assert set(re.findall(r"https?://[^\"' )]+", text)) <= {"http://www.w3.org/2000/svg"}
