"""A picture that follows the API server, whatever the server and the line do."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from aliquot.kubernetes import paths
from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.objects import Pod
from aliquot.kubernetes.reflector import Reflector
from aliquot.kubernetes.watch import Change, ChangeKind
from simcluster.apiserver import ApiServer, pod


class Picture:
    """What somebody believes who only listens to the reflector."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        self.told: list[str] = []
        self.fail_next = False

    def replace(self, pods: list[Pod]) -> None:
        self.phases = {each.metadata.name: each.status.phase for each in pods}
        self.told.append("list")

    def change(self, change: Change[Pod]) -> None:
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("as the test wants it")
        name = change.object.metadata.name
        if change.kind is ChangeKind.DELETED:
            del self.phases[name]
        else:
            self.phases[name] = change.object.status.phase
        self.told.append(f"{change.kind} {name}")


def truth(server: ApiServer) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["status"]["phase"] for each in server.objects(paths.PODS)
    }


@contextmanager
def reflecting(
    server: ApiServer, picture: Picture, field_selector: str = ""
) -> Iterator[Reflector[Pod]]:
    reflector = Reflector(
        server.client(),
        paths.PODS,
        Pod,
        picture.replace,
        picture.change,
        field_selector=field_selector,
        backoff=Backoff(first_s=0.01, most_s=0.05),
    )
    reflector.start()
    try:
        yield reflector
    finally:
        reflector.stop()
        assert not reflector._thread.is_alive()


def standing(server: ApiServer, reflector: Reflector[Pod]) -> None:
    assert reflector.synced.wait(60)
    server.wait_for(lambda: server.watches(paths.PODS))


def test_it_lists_once_and_then_follows(server: ApiServer) -> None:
    picture = Picture()
    server.add(pod("a", phase="Pending"))
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        server.add(pod("b", phase="Pending"))
        server.merge(paths.pod_path("default", "a"), {"status": {"phase": "Running"}})
        server.remove(paths.pod_path("default", "b"))
        server.wait_for(lambda: len(picture.told) == 4)
    assert picture.told == ["list", "ADDED b", "MODIFIED a", "DELETED b"]
    assert picture.phases == {"a": "Running"}


def test_an_object_that_leaves_the_selection_is_deleted_from_the_picture(
    server: ApiServer,
) -> None:
    picture = Picture()
    server.add(pod("a", phase="Running"))
    with reflecting(server, picture, "status.phase=Running") as reflector:
        standing(server, reflector)
        server.merge(paths.pod_path("default", "a"), {"status": {"phase": "Failed"}})
        server.wait_for(lambda: picture.phases == {})
    assert picture.told == ["list", "DELETED a"]


def test_a_watch_that_ends_or_breaks_goes_on_without_a_new_list(server: ApiServer) -> None:
    picture = Picture()
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        server.end_watches()
        server.add(pod("a", phase="Pending"))
        server.wait_for(lambda: "a" in picture.phases)
        server.wait_for(lambda: server.watches(paths.PODS))
        server.drop_watches()
        server.add(pod("b", phase="Pending"))
        server.wait_for(lambda: "b" in picture.phases)
        assert reflector.lists == 1


@pytest.mark.parametrize("as_status", [False, True])
def test_a_gap_is_closed_by_a_new_list(server: ApiServer, as_status: bool) -> None:
    picture = Picture()
    server.add(pod("old", phase="Running"))
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        with server.away():
            server.remove(paths.pod_path("default", "old"))
            server.add(pod("new", phase="Running"))
            server.compact(gone_as_status=as_status)
        server.wait_for(lambda: picture.phases == {"new": "Running"})
        assert reflector.lists == 2


def test_an_error_event_in_the_middle_is_answered_by_a_new_list(server: ApiServer) -> None:
    picture = Picture()
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        server.expire_watches()
        server.wait_for(lambda: reflector.lists == 2)
        server.add(pod("a", phase="Pending"))
        server.wait_for(lambda: "a" in picture.phases)


def test_it_starts_without_a_server_and_syncs_when_there_is_one(server: ApiServer) -> None:
    with ExitStack() as stack:
        with server.away():
            reflector = stack.enter_context(reflecting(server, Picture()))
            server.wait_for(lambda: reflector.trouble)
            assert not reflector.synced.is_set()
            assert reflector.age_s == float("inf")
        standing(server, reflector)
        assert reflector.age_s < 60
        server.wait_for(lambda: not reflector.trouble)


def test_bookmarks_are_signs_of_life(server: ApiServer) -> None:
    picture = Picture()
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        server.wait_for(lambda: reflector.age_s > 0.2)
        server.wait_for(lambda: server.send_bookmarks() or reflector.age_s < 0.1)
    assert picture.told == ["list"]


def test_a_callback_that_raises_costs_a_list_and_no_change(server: ApiServer) -> None:
    picture = Picture()
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        picture.fail_next = True
        server.add(pod("a", phase="Pending"))
        server.wait_for(lambda: picture.phases == {"a": "Pending"})
        assert reflector.lists == 2


def test_it_stays_away_as_long_as_the_server_asks(server: ApiServer) -> None:
    picture = Picture()
    server.fail(429, "TooManyRequests", retry_after_s=1, method="GET", times=2)
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        # Backing off by itself, it would have come back at once.
        assert len(server.asked("GET")) == 3


def test_the_same_mishap_is_described_once(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    picture = Picture()
    again = threading.Semaphore(0)

    def fail(_: list[Pod]) -> None:
        again.release()
        raise OverflowError("too large")

    picture.replace = fail  # type: ignore[method-assign]
    with reflecting(server, picture) as reflector:
        for _ in range(4):
            assert again.acquire(timeout=60)
        assert reflector.trouble.endswith("OverflowError: too large")
    described = [each for each in caplog.records if each.exc_info]
    assert len(described) == 1


def test_stop_does_not_wait_for_the_next_change(server: ApiServer) -> None:
    picture = Picture()
    with reflecting(server, picture) as reflector:
        standing(server, reflector)
        reflector.stop()
    server.add(pod("late"))
    assert picture.told == ["list"]


@pytest.mark.parametrize("seed", range(4))
def test_after_any_faults_the_picture_is_the_truth(server: ApiServer, seed: int) -> None:
    dice = random.Random(seed)
    picture = Picture()

    def change_something() -> None:
        name = f"p{dice.randrange(6)}"
        path = paths.pod_path("default", name)
        if server.get(path) is None:
            server.add(pod(name, phase="Pending"))
        elif dice.random() < 0.4:
            server.remove(path)
        else:
            server.merge(path, {"status": {"phase": dice.choice(["Running", "Failed"])}})

    with reflecting(server, picture) as reflector:
        for _ in range(60):
            change_something()
            fault = dice.randrange(12)
            if fault == 0:
                server.drop_watches()
            elif fault == 1:
                server.compact()
                server.drop_watches()
            elif fault == 2:
                server.fail(500, path="pods")
            elif fault == 3:
                server.expire_watches()
            elif fault == 4:
                server.send_bookmarks()
            elif fault == 5:
                with server.away():
                    change_something()
            if dice.random() < 0.3:
                server.wait_for(lambda: picture.phases == truth(server))
        server.clear_faults()
        server.wait_for(lambda: picture.phases == truth(server))
        assert reflector.lists >= 1


def test_many_reflectors_share_one_client(server: ApiServer) -> None:
    client = server.client()
    pictures = [Picture() for _ in range(8)]
    reflectors = [
        Reflector(client, paths.PODS, Pod, each.replace, each.change) for each in pictures
    ]
    for each in reflectors:
        each.start()
    threads = [
        threading.Thread(
            target=lambda n=number: [
                client.create(paths.pods_path("default"), pod(f"p{n}-{i}")) for i in range(10)
            ]
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    server.wait_for(lambda: all(each.phases == truth(server) for each in pictures))
    assert len(truth(server)) == 40
    for each in reflectors:
        each.stop()
