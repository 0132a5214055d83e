"""What `/view` tells of a cluster whose agents answer, or do not, or lie."""

import socket
import threading
import time

import pytest

from aliquot.protocol import view
from aliquot.protocol.view import ClusterView, History
from scheduler_ext.connection import Response
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod
from tests.integration.dashboard.conftest import GIB, node_with_agent
from tests.patience import PATIENCE_S, eventually


def look(fetch, extender, path="/view") -> ClusterView:
    status, _, body = fetch(extender.dashboard_port, path)
    assert status == 200, body
    return view.decode(body, ClusterView)


def node_of(told: ClusterView, name: str):
    return next(each for each in told.nodes if each.name == name)


def settled(fetch, extender, name: str, path: str = "/view"):
    """The node once its agent has been asked, however busy this machine is."""

    def probe():
        node = node_of(look(fetch, extender, path), name)
        return None if "has not been asked yet" in node.problem else node

    return eventually(probe)


def answers(fetch, extender, name: str) -> bool:
    return eventually(lambda: not node_of(look(fetch, extender), name).problem)


def test_agents_tell_what_runs_and_the_cluster_what_is_planned_or_waits(
    server, agent, extender, fetch
):
    there = agent("a")
    server.add(node_with_agent("a", there.url))
    running = extender()
    stored = server.add(gpu_pod("coming", memory=16))
    big = server.add(gpu_pod("big", memory=400))
    with FakeScheduler(running.port) as scheduler:
        assert scheduler.schedule(stored, ["a"]) == "a"
        assert scheduler.choose(big, ["a"]) is None
    server.wait_for(lambda: running.state.pod_named("default", "big"))

    def shown():
        told = look(fetch, running)
        slices = node_of(told, "a").gpus[0].slices
        return told if len(slices) == 2 and told.waiting else None

    told = eventually(shown)
    runs, planned = node_of(told, "a").gpus[0].slices
    assert (runs.pod, runs.memory_used_bytes, runs.compute_used_percent) == ("p", 3 * GIB, 12.5)
    assert (planned.pod, planned.is_running) == ("coming", False)
    assert node_of(told, "a").problem == ""
    (waits,) = told.waiting
    assert (waits.pod, waits.asks) == ("big", "100 GiB and 30 percent")
    assert waits.reason == (
        "its GPUs are free on none of 1 nodes: GPU 0 is the largest: 40 of 100 GiB asked on one GPU"
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Response(b"<html>"), "JSON is malformed"),
        (Response(b'{"name": 7, "taken_at": 1}'), "Expected `str`, got `int`"),
        (Response(b"\xff\xfe"), "its agent tells nothing"),
        (Response(b"{}", 500), "the answer has status 500"),
        (Response(b"", 302, headers={"Location": "/view?elsewhere"}), "the answer has status 302"),
        (Response(b"[" * 100_000), "its agent"),
        (Response(b" " * (5 << 20)), "more than 4 MiB"),
    ],
)
def test_whatever_an_agent_answers_is_a_problem_of_its_node_alone(
    server, agent, extender, fetch, answer, text
):
    bad, good = agent("bad"), agent("good")
    bad.answer = lambda _: answer
    server.add(node_with_agent("bad", bad.url))
    server.add(node_with_agent("good", good.url))
    running = extender()
    node = settled(fetch, running, "bad")
    assert text in node.problem
    assert [gpu.index for gpu in node.gpus] == [0]
    assert answers(fetch, running, "good")
    assert set(bad.queries) == {""}, "a redirect is not followed"


def test_agents_that_cannot_be_asked(server, extender, fetch):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        server.add(node_with_agent("silent", f"http://127.0.0.1:{silent.getsockname()[1]}"))
        server.add(node_with_agent("refusing", f"http://127.0.0.1:{refusing.getsockname()[1]}"))
        server.add(node_with_agent("evil", "http://169.254.169.254/latest/meta-data"))
        server.add(gpu_node("old"))
        running = extender()
        assert "within 2 s" in settled(fetch, running, "silent").problem
        assert "refused" in settled(fetch, running, "refusing").problem
        assert "is not like http://10.0.0.1:9400" in settled(fetch, running, "evil").problem
        assert "has not said where" in settled(fetch, running, "old").problem


def test_a_silent_agent_does_not_keep_others_waiting_for_ever(server, extender, agent, fetch):
    """Its deadline is for the whole answer: one byte now and then does not stretch it."""
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as stream:
            while not stop.wait(0.2):
                try:
                    stream.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            server.add(node_with_agent("drip", f"http://127.0.0.1:{listener.getsockname()[1]}"))
            assert "within 2 s" in settled(fetch, extender(), "drip").problem
        finally:
            stop.set()
            thread.join()


def test_nobody_is_asked_while_nobody_looks_and_once_for_many_viewers(
    server, agent, extender, fetch
):
    there = agent("a")
    server.add(node_with_agent("a", there.url))
    running = extender()
    assert there.queries == []
    viewers = [threading.Thread(target=look, args=(fetch, running)) for _ in range(10)]
    for each in viewers:
        each.start()
    for each in viewers:
        each.join()
    assert answers(fetch, running, "a")
    assert there.most_at_once == 1


def history(values: list[float], end_at: float) -> History:
    return History(
        step_s=60,
        end_at=end_at,
        memory_held_bytes=list(values),
        memory_used_bytes=list(values),
        compute_held_percent=list(values),
        compute_used_percent=list(values),
    )


def test_histories_are_added_up_and_one_nodes_are_told_by_gpu(server, agent, extender, fetch):
    end_at = time.time() // 60 * 60
    for name in ("a", "b"):
        there = agent(name)

        def answer(query: str, there=there) -> Response:
            past = {"GPU-x": history([1.0, 2.0], end_at), "GPU-y": history([10.0, 20.0], end_at)}
            return Response(view.encode(there.view(history=past if query else None)))

        there.answer = answer
        server.add(node_with_agent(name, there.url))
    running = extender()

    def both():
        told = look(fetch, running, "/view?history")
        known = [each for each in told.history.memory_used_bytes if each] if told.history else []
        return told if sum(known) >= 66.0 else None

    told = eventually(both)
    known = [each for each in told.history.memory_used_bytes if each is not None]
    assert known == [22.0, 44.0]
    assert all(node.history is None for node in told.nodes)
    assert look(fetch, running).history is None

    def alone():
        told = look(fetch, running, "/view?history&node=a")
        return told if told.history else None

    one = eventually(alone)
    (node,) = one.nodes
    assert (node.name, sorted(node.history)) == ("a", ["GPU-x", "GPU-y"])
    assert [each for each in one.history.memory_used_bytes if each is not None] == [11.0, 22.0]
    assert one.waiting == ()


def test_an_unknown_node_is_not_found(extender, fetch):
    status, _, body = fetch(extender().dashboard_port, "/view?node=nowhere")
    assert status == 404
    assert b"no node nowhere reports GPUs" in body
