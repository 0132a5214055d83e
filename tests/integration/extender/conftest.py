from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_ext.extender import Extender
from scheduler_ext.groups import GroupTimes
from scheduler_ext.server import Limits
from scheduler_ext.settings import load
from simcluster.apiserver import ApiServer
from tests.extender_cluster import FakeScheduler

Start = Callable[..., Extender]

# Nothing that a test waits for runs out because the machine is busy.
_UNHURRIED = GroupTimes(hold_s=600.0, barrier_s=600.0, plan_s=600.0)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as standing:
        yield standing


@pytest.fixture
def start(server: ApiServer) -> Iterator[Start]:
    """Starts an extender against the server, by default a single replica, and awaits readiness."""
    started: list[Extender] = []

    def begin(*, ready: bool = True, limits: Limits | None = None, **options: Any) -> Extender:
        given = {
            "listen": "127.0.0.1:0",
            "listen_tls": "off",
            "dashboard": "off",
            "leader_election": "off",
            **options,
        }
        extender = Extender(load(given, {}), server.client(), limits=limits, group_times=_UNHURRIED)
        started.append(extender)
        extender.start()
        if ready:
            server.wait_for(lambda: not extender.not_ready(leading=True))
        return extender

    yield begin
    for extender in started:
        extender.stop()


@pytest.fixture
def connect() -> Iterator[Callable[[Extender], FakeScheduler]]:
    made: list[FakeScheduler] = []

    def to(extender: Extender) -> FakeScheduler:
        made.append(FakeScheduler(extender.port))
        return made[-1]

    yield to
    for each in made:
        each.close()
