"""`make e2e`: makes what clusters need, then lets pytest test three of them side by side.

Most of the time a cluster waits: for pods to start, to end, to be noticed. So every folder of tests
has a cluster of its own, in a sandbox in which one of pytest's workers runs.

Alone, `--preflight` says what the machine lacks, `--packages` names the Debian packages that are
needed, and `--path` the folders of the compiled programs, as a PATH. Other words go to pytest.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.binaries import MODULES
from tests.e2e.cluster import prepare
from tests.e2e.places import CHECKOUT
from tests.e2e.preflight import PACKAGES, check_machine
from tests.e2e.sandbox import ENDS_WITH_US, Sandbox, locked, take_signals_as_exit

RUN_LOCK = Path("/run/aliquot-e2e.lock")
PR_SET_PDEATHSIG = 1
# An hour for the first test, which waits for its cluster, on a crowded machine.
OPTIONS = (
    *("-v", "--no-header", "--timeout=3600", "--max-worker-restart=0"),
    *("--dist=loadscope", "-p", "tests.e2e.distribution"),
)


def _folders() -> list[str]:
    here = Path(__file__).parent
    return sorted({test.parent.name for test in here.glob("*/test_*.py")})


def _workers() -> Iterator[str]:
    for name in _folders():
        python = " ".join([*ENDS_WITH_US, sys.executable, "-m", "tests.e2e.sandbox", name])
        yield f"--tx=popen//id={name}//python={python}"


def _end_with_make() -> None:
    """Make starts us without a shell in between. If it were killed, nobody would see what goes on
    here, and for minutes nobody else could use this machine."""
    take_signals_as_exit()
    if "MAKELEVEL" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _run(words: list[str]) -> int:
    _end_with_make()
    if not any(word.startswith(("tests/", "@")) for word in words):
        words = [*words, "tests/e2e"]
    with locked(RUN_LOCK, "another run on this machine to end"):
        prepare()  # inside of the lock: another run must not take the images of this one away
        pytest = subprocess.Popen(
            [*ENDS_WITH_US, sys.executable, "-m", "pytest", *OPTIONS, *_workers(), *words],
            cwd=CHECKOUT,
        )
        try:
            return pytest.wait()
        finally:
            pytest.kill()
            pytest.wait()
            for name in _folders():
                with Sandbox(name).used():
                    pass  # what a worker that had to be killed has left is gone


def main() -> int:
    match sys.argv[1:]:
        case ["--packages"]:
            print(*PACKAGES)
            return 0
        case ["--path"]:
            print(":".join(str(module.folder) for module in MODULES))
            return 0
        case ["--preflight"]:
            check_machine()
            print("e2e: this machine can hold the test clusters")
            return 0
        case words:
            return _run(words)


if __name__ == "__main__":
    sys.exit(main())
