"""The agent knows the pods of its node, waits for late ones, and notices who is gone."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from aliquot.kubernetes.paths import pod_path
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from deviceplugin.cluster.pods import PodCache
from simcluster.apiserver import ApiServer, mirror, pod

WEB = pod_path("team", "web")


class Told:
    def __init__(self) -> None:
        self.log: list[str] = []

    def cache(self, server: ApiServer) -> PodCache:
        return PodCache(
            server.client(),
            "n1",
            lambda known: self.log.append(f"changed {known.view.name}"),
            lambda known: self.log.append(f"gone {known.view.name}"),
        )


@contextmanager
def running(cache: PodCache) -> Iterator[PodCache]:
    cache.start()
    try:
        yield cache
    finally:
        cache.stop()


def test_pods_of_this_node_are_found_by_name_and_uid(server: ApiServer) -> None:
    plan = Assignment({"main": (Slice("GPU-a", 16, 30),)})
    annotations = {names.PLAN: assignment.encode(plan), names.RESIZE: "soon"}
    uid = server.add(pod("web", "team", node="n1", memory=16, compute=30, annotations=annotations))[
        "metadata"
    ]["uid"]
    server.add(pod("elsewhere", "team", node="n2"))
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        found = cache.find("team", "web")
        assert found is not None
        assert (found.uid, found.plan, found.resize) == (uid, plan, "soon")
        assert found.request is not None
        assert found.request.containers[0].memory_units == 16
        known = cache.by_uid(uid)
        assert known is not None
        assert known.view is found
        assert cache.find("team", "elsewhere") is None
        assert [each.name for each in cache.waiting()] == ["web"]


def test_a_pod_whose_annotations_make_no_sense_says_why(server: ApiServer) -> None:
    wrong = {names.GPUS: "many", names.PLAN: "{"}
    server.add(pod("web", "team", node="n1", memory=16, annotations=wrong))
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        found = cache.find("team", "web")
        assert found is not None
        assert (found.request, found.plan) == (None, None)
        assert names.GPUS in found.refusal


def test_a_static_pod_is_known_by_the_kubelets_uid(server: ApiServer) -> None:
    stored = server.add(mirror("web", "of-the-kubelet"))
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        known = cache.by_uid("of-the-kubelet")
        assert known is not None
        assert known.api_uid == stored["metadata"]["uid"]
        assert cache.by_uid(known.api_uid) is known
        server.remove(WEB)
        server.wait_for(lambda: cache.by_uid("of-the-kubelet") is None)


def _of_another_node(made: dict[str, Any]) -> None:
    made["metadata"]["ownerReferences"][0]["name"] = "n2"


def _of_no_node(made: dict[str, Any]) -> None:
    del made["metadata"]["ownerReferences"]


def _not_a_mirror(made: dict[str, Any]) -> None:
    del made["metadata"]["annotations"]["kubernetes.io/config.mirror"]


@pytest.mark.parametrize("spoil", [_of_another_node, _of_no_node, _not_a_mirror])
def test_only_mirrors_of_our_kubelet_have_another_uid(
    server: ApiServer, spoil: Callable[[dict[str, Any]], None]
) -> None:
    made = mirror("web", "somebody-else")
    spoil(made)
    uid = server.add(made)["metadata"]["uid"]
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        assert cache.by_uid("somebody-else") is None
        found = cache.find("team", "web")
        assert found is not None
        assert found.uid == uid


def test_a_pod_of_the_api_server_comes_before_who_takes_its_uid(server: ApiServer) -> None:
    uid = server.add(pod("web", "team", node="n1"))["metadata"]["uid"]
    # Earlier and later in the list.
    for name in ("thief", "zealot"):
        server.add(mirror(name, uid))
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        known = cache.by_uid(uid)
        assert known is not None
        assert known.view.name == "web"
        assert len(cache.known()) == 3


def test_a_late_pod_is_waited_for(server: ApiServer) -> None:
    with running(Told().cache(server)) as cache:
        server.wait_for(lambda: server.watches("/api/v1/pods"))
        server.wait_for(lambda: not cache.trouble)
        adder = threading.Timer(0.1, lambda: server.add(pod("web", "team", node="n1")))
        adder.start()
        found = cache.wait("team", "web", 60)
        adder.join()
        assert found is not None
        assert cache.wait("team", "never", 0.05) is None


def test_nobody_waits_for_a_server_that_is_away(server: ApiServer) -> None:
    with ExitStack() as stack:
        stack.enter_context(server.away())
        cache = stack.enter_context(running(Told().cache(server)))
        server.wait_for(lambda: cache.trouble)
        began_s = time.monotonic()
        assert cache.wait("team", "web", 600) is None
        assert time.monotonic() - began_s < 60


def test_changes_and_ends_are_told_once(server: ApiServer) -> None:
    told = Told()
    server.add(pod("web", "team", node="n1", phase="Running"))
    server.add(pod("job", "team", node="n1", phase="Running"))
    with running(told.cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        server.merge(WEB, {"metadata": {"labels": {"not": "ours"}}})
        server.merge(WEB, {"metadata": {"annotations": {names.POLICY: "fixed"}}})
        job = pod_path("team", "job")
        server.merge(job, {"status": {"phase": "Succeeded"}})
        server.wait_for(lambda: "gone job" in told.log)
        assert [each.name for each in cache.waiting()] == ["web"]
        assert cache.find("team", "job") is not None
        server.remove(job)
        server.remove(WEB)
        server.wait_for(lambda: "gone web" in told.log)
        assert cache.known() == []
    assert sorted(told.log[:2]) == ["changed job", "changed web"]
    assert told.log[2:] == ["changed web", "gone job", "gone web"]


def test_a_successor_of_the_same_name_takes_the_place(server: ApiServer) -> None:
    told = Told()
    first = server.add(pod("web", "team", node="n1"))["metadata"]["uid"]
    with running(told.cache(server)) as cache:
        server.wait_for(lambda: cache.is_synced)
        with server.away():
            server.remove(WEB)
            second = server.add(pod("web", "team", node="n1"))["metadata"]["uid"]
            server.compact()
        server.wait_for(lambda: cache.by_uid(second))
        assert cache.by_uid(first) is None
        found = cache.find("team", "web")
        assert found is not None
        assert found.uid == second
    assert told.log == ["changed web", "gone web", "changed web"]


def test_only_a_server_that_is_there_says_who_is_gone(server: ApiServer) -> None:
    told = Told()
    uid = server.add(pod("web", "team", node="n1", phase="Running"))["metadata"]["uid"]
    job = server.add(pod("job", "team", node="n1", phase="Running"))["metadata"]["uid"]
    cache = told.cache(server)
    assert not cache.is_gone("team", "other", "nobody's"), "nothing is known yet"
    with running(cache):
        server.wait_for(lambda: cache.is_synced and not cache.trouble)
        server.merge(pod_path("team", "job"), {"status": {"phase": "Succeeded"}})
        server.wait_for(lambda: "gone job" in told.log)
        assert not cache.is_gone("team", "web", uid)
        assert not cache.is_gone("team", "web", "")
        for gone in ("job", job), ("job", ""), ("web", "of an older one"), ("other", ""):
            assert cache.is_gone("team", *gone)
        with server.away():
            server.wait_for(lambda: cache.trouble)
            assert not cache.is_gone("team", "job", job)
