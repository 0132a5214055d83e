"""The kubelet hears of a pod before our own watch does, and the agent waits for it, a moment."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from deviceplugin.booking.allocator import POD_WAIT_S
from deviceplugin.booking.sources import PodView
from deviceplugin.cluster.pods import PodCache
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.books import gpus_of
from tests.clusterpods import NODE, bound
from tests.integration.agent.kubelet_side import UUIDS, kubelet_side
from tests.patience import PATIENCE_S, eventually


class PatientPods:
    """The agent's own pods, waited for as long as this machine needs instead of a moment."""

    def __init__(self, cache: PodCache) -> None:
        self.cache = cache
        self.waits = 0
        self.meanwhile: Callable[[], object] = lambda: None
        """Called before the first wait."""

    def find(self, namespace: str, name: str) -> PodView | None:
        return self.cache.find(namespace, name)

    def wait(self, namespace: str, name: str, seconds: float) -> PodView | None:
        assert 0 < seconds <= POD_WAIT_S
        if not self.waits:
            self.meanwhile()
        self.waits += 1
        return self.cache.wait(namespace, name, PATIENCE_S)

    def waiting(self) -> Iterable[PodView]:
        return self.cache.waiting()

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        return self.cache.is_gone(namespace, name, uid)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.add(node_manifest(NODE))
        yield started


@pytest.fixture
def pods(server: ApiServer, kubelet: Kubelet, short_path: Path) -> Iterator[PatientPods]:
    cache = PodCache(server.client(), NODE, lambda _: None, lambda _: None)
    cache.start()
    try:
        made = PatientPods(cache)
        with kubelet_side(kubelet, short_path, made):
            server.wait_for(lambda: server.watches("/api/v1/pods"))
            eventually(lambda: cache.is_synced and not cache.trouble)
            yield made
    finally:
        cache.stop()


@pytest.mark.parametrize(
    ("wish", "text", "wanted"), [("gpus", "2", set(UUIDS)), ("gpu_uuid", UUIDS[1], {UUIDS[1]})]
)
def test_a_watch_that_is_late(
    kubelet: Kubelet, server: ApiServer, pods: PatientPods, wish: str, text: str, wanted: set[str]
):
    pod = Pod.asking("late", memory=2, compute=2)
    pods.meanwhile = lambda: server.add(bound(pod, **{wish: text}))
    kubelet.admit(pod)
    assert gpus_of(kubelet, pod) == wanted
    assert pods.waits == 1
