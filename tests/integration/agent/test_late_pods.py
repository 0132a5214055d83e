"""A breach of a pod that the API server has not shown yet: it is told when it does."""

from collections.abc import Iterator

import pytest

from aliquot.kubernetes.paths import events_path, pod_path
from deviceplugin.cluster.link import UNTOLD_MOST, ClusterLink, Node
from simcluster.apiserver import ApiServer, pod

WEB = pod_path("team", "web")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        yield started


@pytest.fixture
def link(server: ApiServer) -> ClusterLink:
    """Not started: to it the API server is away."""
    return ClusterLink(
        server.client(),
        Node(
            name="n1",
            unit_mib=256,
            on_pod=lambda _: None,
            on_gone=lambda _: None,
            actual_of=lambda _: None,
            resize=lambda *_: None,
        ),
    )


def test_who_broke_out_before_the_api_server_was_back_is_told_and_evicted(
    server: ApiServer, link: ClusterLink
) -> None:
    made = pod("web", "team", node="n1", memory=16, compute=30, phase="Running")
    uid = server.add(made)["metadata"]["uid"]
    link.tell_pod(uid, "GpuLimitBreached", "it has 8Gi, its cap is 4Gi")
    link.evict(uid, "it has 8Gi, its cap is 4Gi")
    # Of pods that are never shown, the oldest are given up.
    for number in range(UNTOLD_MOST - 1):
        link.tell_pod(f"nobody-{number}", "GpuLimitBreached", "a static pod without a mirror")
    link.start()
    try:
        server.wait_for(lambda: server.get(WEB)["metadata"].get("deletionTimestamp"))
        assert link.events.flush(60)
    finally:
        link.stop()
    events = [(each["reason"], each["count"]) for each in server.objects(events_path("team"))]
    assert sorted(events) == [("Evicting", 1), ("GpuLimitBreached", 1)]
