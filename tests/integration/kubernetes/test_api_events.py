"""Events reach the API server once, counted, and never hold up whoever tells them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.events import EventRecorder, node_reference, pod_reference
from aliquot.kubernetes.paths import events_path
from simcluster.apiserver import ApiServer

WEB = pod_reference("team", "web", "uid-1")


@contextmanager
def recording(
    server: ApiServer, *, repeat_s: float = 0.0, waiting_most: int = 1000, window_s: float = 600.0
) -> Iterator[EventRecorder]:
    recorder = EventRecorder(
        server.client(),
        "aliquot-agent",
        "n1",
        repeat_s=repeat_s,
        window_s=window_s,
        waiting_most=waiting_most,
        backoff=Backoff(first_s=0.01, most_s=0.05),
    )
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop(30)
        assert not recorder._thread.is_alive()


def test_an_event_says_what_about_whom_from_where(server: ApiServer) -> None:
    with recording(server) as recorder:
        recorder.emit(WEB, "ResizeRefused", "GPU 1 has 2 units free, 8 were asked", "Warning")
        assert recorder.flush(60)
    (event,) = server.objects(events_path("team"))
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == ("Pod", "web", "uid-1")
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ResizeRefused", 1)
    assert event["message"] == "GPU 1 has 2 units free, 8 were asked"
    assert event["source"] == {"component": "aliquot-agent", "host": "n1"}
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_events_of_nodes_are_where_kubectl_describe_looks(server: ApiServer) -> None:
    with recording(server) as recorder:
        recorder.emit(node_reference("n1"), "GpuUnhealthy", "GPU 0 reports Xid 79", "Warning")
        assert recorder.flush(60)
    (event,) = server.objects(events_path("default"))
    assert event["involvedObject"]["uid"] == "n1"


def test_equal_events_are_counted_in_one(server: ApiServer) -> None:
    with recording(server) as recorder:
        for _ in range(5):
            recorder.emit(WEB, "Breach", "holds more than its cap", "Warning")
            assert recorder.flush(60)
        recorder.emit(WEB, "Breach", "another text", "Warning")
        assert recorder.flush(60)
    counts = {each["message"]: each["count"] for each in server.objects(events_path("team"))}
    assert counts == {"holds more than its cap": 5, "another text": 1}


def test_repeats_are_written_rarely_but_not_lost(server: ApiServer) -> None:
    with recording(server, repeat_s=1.0) as recorder:
        recorder.emit(WEB, "Breach", "x")
        assert recorder.flush(60)
        for _ in range(50):
            recorder.emit(WEB, "Breach", "x")
        server.wait_for(lambda: server.objects(events_path("team"))[0]["count"] == 51)
    assert len(server.asked("PATCH")) < 10


def test_after_the_window_an_event_is_a_new_one(server: ApiServer) -> None:
    with recording(server, window_s=0.0) as recorder:
        for _ in range(2):
            recorder.emit(WEB, "Breach", "x")
            assert recorder.flush(60)
    assert [each["count"] for each in server.objects(events_path("team"))] == [1, 1]


def test_an_event_that_expired_in_the_server_is_written_anew(server: ApiServer) -> None:
    with recording(server) as recorder:
        recorder.emit(WEB, "Breach", "x")
        assert recorder.flush(60)
        (event,) = server.objects(events_path("team"))
        server.remove(f"{events_path('team')}/{event['metadata']['name']}")
        recorder.emit(WEB, "Breach", "x")
        assert recorder.flush(60)
    assert [each["count"] for each in server.objects(events_path("team"))] == [1]


def test_while_the_server_is_away_events_wait_in_order(server: ApiServer) -> None:
    with recording(server) as recorder:
        with server.away():
            for number in range(3):
                recorder.emit(WEB, "Note", f"text {number}")
            assert not recorder.flush(0.05)
        assert recorder.flush(60)
        assert recorder.dropped == 0
    bodies = [each.body["message"] for each in server.asked("POST")]
    assert bodies == ["text 0", "text 1", "text 2"]


def test_a_full_queue_drops_and_says_so(server: ApiServer) -> None:
    gate = server.hold(method="POST")
    with recording(server, waiting_most=2) as recorder:
        recorder.emit(WEB, "Note", "the one that hangs")
        assert gate.reached.wait(60)
        for number in range(5):
            recorder.emit(WEB, "Note", f"text {number}")
        recorder.emit(WEB, "Note", "text 0")
        assert recorder.dropped == 3
        gate.open()
        assert recorder.flush(60)
    counts = {each["message"]: each["count"] for each in server.objects(events_path("team"))}
    assert counts == {"the one that hangs": 1, "text 0": 2, "text 1": 1}


def test_a_refused_event_does_not_stop_the_others(server: ApiServer) -> None:
    server.fail(403, "Forbidden", "the namespace is being terminated", method="POST")
    with recording(server) as recorder:
        recorder.emit(WEB, "Note", "refused")
        recorder.emit(WEB, "Note", "written")
        assert recorder.flush(60)
        assert recorder.dropped == 1
    assert [each["message"] for each in server.objects(events_path("team"))] == ["written"]


def test_a_mistake_with_one_event_does_not_stop_the_others(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(server) as recorder:
        written = recorder._write
        monkeypatch.setattr(recorder, "_write", lambda *_: 1 // 0)
        recorder.emit(WEB, "Resized", "first")
        assert recorder.flush(60)
        monkeypatch.setattr(recorder, "_write", written)
        recorder.emit(WEB, "Resized", "second")
        assert recorder.flush(60)
    assert [each["message"] for each in server.objects(events_path("team"))] == ["second"]
    assert recorder.dropped == 1


def test_long_texts_are_cut_to_what_the_server_takes(server: ApiServer) -> None:
    with recording(server) as recorder:
        recorder.emit(WEB, "Note", "x" * 5000)
        assert recorder.flush(60)
    assert len(server.objects(events_path("team"))[0]["message"]) == 1024
