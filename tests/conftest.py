"""What holds for every test: which skips are failures, and where failures are written down."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, however slow the machine is today: what fails here fails everywhere.
settings.register_profile(
    "aliquot", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("aliquot")

# A shell starts its background jobs with these ignored, and children inherit that: tests of Ctrl-C
# would depend on how the tests were started.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and os.environ.get("ALIQUOT_NO_SKIPS") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not skip here: {reason}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each test that failed, in the file that ALIQUOT_FAILED_TESTS names."""
    path = os.environ.get("ALIQUOT_FAILED_TESTS")
    # With xdist, workers report to the process that started them, which reports as well.
    if report.failed and path and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")
