"""The agent hears of its end, at whatever moment the signal comes."""

import subprocess
import sys

import pytest

MIDST = """
import os, signal, sys
from deviceplugin.command import ended_by_signal
ending = ended_by_signal()
# As in the midst of Event.wait, before it sleeps.
with ending._cond:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
ending.wait()
print("ended")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_just_before_the_wait_ends_it(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MIDST, name], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
