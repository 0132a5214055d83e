"""The demo as its user runs it: the whole of it, and Ctrl-C in the middle."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import eventually

pytestmark = [pytest.mark.slow, pytest.mark.serial]

PATIENCE_S = 240.0


class Demo:
    """`aliquot demo` with a folder of its own for temporary files."""

    def __init__(self, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aq-"))
        self._log = self.folder / "log"
        (self.folder / "t").mkdir()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aliquot.cli", "demo", *options],
                env={**os.environ, "TMPDIR": str(self.folder / "t")},
                stdout=log,
                stderr=log,
            )
        self._seen: set[tuple[int, str]] = set()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        def found() -> bool:
            assert self._process.poll() is None or text in self.said, self.said
            return text in self.said

        eventually(found, PATIENCE_S)
        self._seen |= descendants(self._process.pid)

    def end(self, number: int) -> int:
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)

    def assert_gone(self) -> None:
        """No process, no file."""
        assert len(self._seen) > 2
        eventually(lambda: not {(pid, start) for pid, start in self._seen if born(pid) == start})
        assert list((self.folder / "t").iterdir()) == []
        assert list(Path("/dev/shm").glob(f"aliquot-demo-{self._process.pid}-*")) == []

    def clear(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_S)
        shutil.rmtree(self.folder)


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    made: list[Demo] = []
    yield made
    for each in made:
        each.clear()


def born(pid: int) -> str:
    """When the process started, in the kernel's ticks; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def descendants(pid: int) -> set[tuple[int, str]]:
    found: set[tuple[int, str]] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {(child, born(child)), *descendants(child)}
    return found


def test_every_promise_is_kept_and_everything_can_be_looked_at_afterwards(
    demos: list[Demo], tmp_path: Path
):
    demo = Demo("--keep", "--svg", str(tmp_path / "demo.svg"))
    demos.append(demo)
    demo.wait_for("a kubeconfig for it")
    assert "All 17 promises were kept." in demo.said
    assert "BROKEN" not in demo.said
    for what, content in (
        ("metrics of the node agent", "aliquot_container_memory_limit_bytes"),
        ("metrics of the extender", "aliquot_"),
        ("the dashboard", "<html"),
    ):
        address = re.search(rf"{what} +(http\S+)", demo.said)
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=PATIENCE_S) as answer:
            assert content in answer.read().decode()
    assert "render" in (tmp_path / "demo.svg").read_text()
    assert (tmp_path / "demo.svg").stat().st_size < 150_000
    assert demo.end(signal.SIGINT) == 0
    demo.assert_gone()


@pytest.mark.parametrize("moment", ["starting the scheduler extender", "chat runs on GPU"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_and_no_file(
    demos: list[Demo], moment: str, number: signal.Signals
):
    demo = Demo()
    demos.append(demo)
    demo.wait_for(moment)
    assert demo.end(number) == 130
    if moment != "starting the scheduler extender":
        demo.assert_gone()
    assert list((demo.folder / "t").iterdir()) == []
