"""`make e2e`: makes what a cluster needs, then runs pytest inside of the cluster's sandbox."""

import sys

from tests.e2e.cluster import begin, prepare
from tests.e2e.places import cache
from tests.e2e.preflight import check_machine
from tests.e2e.sandbox import clean_up, only_cluster, start_inside


def main() -> int:
    words = sys.argv[1:]
    if words == ["--preflight"]:
        check_machine()
        print("e2e: this machine can hold a test cluster")
        return 0
    if not any(word.startswith("tests/") for word in words):
        words.append("tests/e2e")
    images = prepare()
    with only_cluster() as lock:
        begin(images)
        # A cluster is slow to answer, and one machine can hold only one.
        pytest = start_inside(
            [sys.executable, "-m", "pytest", "-v", "--no-header", "-p", "no:xdist", *words], lock
        )
        try:
            return pytest.wait()
        finally:
            pytest.kill()
            pytest.wait()
            clean_up(keep_logs=cache() / "logs")


if __name__ == "__main__":
    sys.exit(main())
