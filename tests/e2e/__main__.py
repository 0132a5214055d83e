"""`make e2e`: makes what a cluster needs, then runs pytest inside of the cluster's sandbox.

Alone, `--preflight` says what the machine lacks, `--packages` names the Debian packages that are
needed, and `--path` the folders of the compiled programs, as a PATH. Other words go to pytest.
"""

import sys

from tests.e2e.binaries import MODULES
from tests.e2e.cluster import begin, prepare
from tests.e2e.places import cache
from tests.e2e.preflight import PACKAGES, check_machine
from tests.e2e.sandbox import clean_up, only_cluster, start_inside

# One cluster for all tests, and an hour for the first one that waits for it on a crowded machine.
OPTIONS = ("-v", "--no-header", "-p", "no:xdist", "--timeout=3600")


def main() -> int:
    words = sys.argv[1:]
    match words:
        case ["--packages"]:
            print(*PACKAGES)
            return 0
        case ["--path"]:
            print(":".join(str(module.folder) for module in MODULES))
            return 0
        case ["--preflight"]:
            check_machine()
            print("e2e: this machine can hold a test cluster")
            return 0
    if not any(word.startswith(("tests/", "@")) for word in words):
        words.append("tests/e2e")
    images = prepare()
    with only_cluster() as lock:
        begin(images)
        pytest = start_inside([sys.executable, "-m", "pytest", *OPTIONS, *words], lock)
        try:
            return pytest.wait()
        finally:
            pytest.kill()
            pytest.wait()
            clean_up(keep_logs=cache() / "logs")


if __name__ == "__main__":
    sys.exit(main())
