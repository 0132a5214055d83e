"""Clients that are wrong, huge or slow get a clear answer, and nobody else notices them."""

import json
import socket
import threading

import pytest

from scheduler_ext.server import HttpError, Limits, Response, Route, Server
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod

DEADLINE_S = 60.0


@pytest.fixture
def serve():
    started: list[Server] = []

    def begin(*routes: Route, **limits: float) -> Server:
        given = routes or [Route("POST", "/echo", lambda body, _: Response(body))]
        made = Server(given, limits=Limits(**limits))
        started.append(made)
        made.start()
        return made

    yield begin
    for each in started:
        each.stop()


def _raw(port: int, data: bytes, *, half_close: bool = False) -> bytes:
    """Everything the server says until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as line:
        line.sendall(data)
        if half_close:
            line.shutdown(socket.SHUT_WR)
        said = b""
        while chunk := line.recv(65536):
            said += chunk
        return said


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is not what kube-scheduler sends"),
        (b"[]", "Expected `object`, got `array`"),
        (b"\xff\xfe", "the body is not what kube-scheduler sends"),
        (b'{"Pod": {"metadata": {"name": 7}}, "NodeNames": []}', "Expected `str`, got `int`"),
        (b'{"Pod": {}, "NodeNames": "n1"}', "Expected `array | null`, got `str`"),
        (b'{"Pod": {}, "Nodes": {"items": []}}', "set `nodeCacheCapable: true`"),
        (b'{"NodeNames": []}', "missing required field `Pod`"),
        (b'{"Pod": {}, "Nodes": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_with_the_reason(server, start, connect, body, text):
    scheduler = connect(start())
    for verb in ("filter", "prioritize"):
        status, answer = scheduler.call("POST", f"/scheduler/{verb}", body)
        assert status == 400
        assert text in answer["error"]
    # The connection is as good as new.
    assert scheduler.call("GET", "/readyz") == (200, "ok")


@pytest.mark.parametrize(
    ("verb", "body", "text"),
    [
        ("bind", b"{", "the body is not what kube-scheduler sends"),
        ("bind", b'{"PodName": "p", "PodNamespace": "default"}', "missing required field `PodUID`"),
        ("bind", b'{"PodName": "\\ud800"}', "the body is not what kube-scheduler sends"),
        ("bind", b'{"PodName": ' + b"[" * 100_000, "the body is not what kube-scheduler sends"),
        ("bind", b'{"Deep": ' + b"[" * 100_000, "nested too deeply"),
        ("preempt", b"[]", "Expected `object`, got `array`"),
        ("preempt", b'{"Pod": {}}', "set `nodeCacheCapable: true`"),
        ("preempt", b'{"Pod": {}, "NodeNameToMetaVictims": {"n": 7}}', "Expected `object`"),
    ],
)
def test_the_rarer_verbs_say_what_they_cannot_read_as_well(start, connect, verb, body, text):
    scheduler = connect(start())
    status, answer = scheduler.call("POST", f"/scheduler/{verb}", body)
    assert (status, text in answer["error"]) == (400, True), answer
    assert scheduler.call("GET", "/readyz") == (200, "ok")


@pytest.mark.parametrize("name", ["..", "a/b", "p?x=1", "", "p\r\nX: y"])
def test_a_bind_call_reaches_nothing_but_pods(server, start, connect, name):
    server.add(gpu_node("n1"))
    scheduler = connect(start())
    strange = gpu_pod("p")
    strange["metadata"]["name"] = name
    assert scheduler.bind(strange, "n1") != ""
    assert not server.asked("POST", "")


def test_unknown_nodes_and_empty_lists_are_no_trouble(server, start, connect):
    server.add(gpu_node("n1"))
    scheduler = connect(start())
    stored = server.add(gpu_pod("p"))
    assert scheduler.filter(stored, [])["NodeNames"] == []
    answer = scheduler.filter(stored, ["n1", "strange", "strange", "", "n\u00f6de"])
    assert answer["NodeNames"] == ["n1"]
    assert set(answer["FailedAndUnresolvableNodes"]) == {"strange", "", "n\u00f6de"}
    assert scheduler.prioritize(stored, ["strange", "n1"]) == {"strange": 0, "n1": 10}
    assert "not known here" in scheduler.bind(stored, "strange")
    assert scheduler.verb("preempt", {"Pod": stored, "NodeNameToMetaVictims": {"strange": {}}}) == {
        "NodeNameToMetaVictims": {}
    }
    nobody = gpu_pod("nobody")
    nobody["metadata"]["namespace"] = "default"
    assert "cannot be read" in scheduler.bind(nobody, "n1")


def test_a_pod_that_asks_for_nothing_of_ours_passes(server, start, connect):
    scheduler = connect(start())
    plain = gpu_pod("plain", memory=0, compute=0)
    assert scheduler.filter(plain, ["any"])["NodeNames"] == ["any"]
    assert scheduler.prioritize(plain, ["any"]) == {"any": 0}


def test_a_request_that_contradicts_itself_is_told_to_its_pod(server, start, connect):
    server.add(gpu_node("n1"))
    scheduler = connect(start())
    answer = scheduler.filter(server.add(gpu_pod("p", memory=16, compute=150)), ["n1"])
    assert "ask for whole GPUs (100, 200, ...)" in answer["FailedAndUnresolvableNodes"]["n1"]


def test_a_huge_body_is_refused_before_it_is_read(serve):
    made = serve(body_bytes=1000)
    said = _raw(made.port, b"POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + b"x" * 500)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"the body has 1001 bytes, at most 1000 are taken" in said


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"POST /echo HTTP/2.0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: two\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\n\r\n", 411),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_is_answered_and_closed(serve, request_, status):
    said = _raw(serve().port, request_)
    assert said.startswith(f"HTTP/1.1 {status} ".encode())
    assert "error" in json.loads(said.partition(b"\r\n\r\n")[2])


def test_one_connection_serves_many_requests_without_waiting_for_more_to_send(serve):
    made = serve()
    request_ = b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", made.port), timeout=DEADLINE_S) as line:
        for count in (1, 2):
            line.sendall(request_ * count)
            said = b""
            while said.count(b"\r\n\r\n{}") < count:
                said += line.recv(65536)
            assert said.count(b"HTTP/1.1 200 ") == said.count(b"Connection: keep-alive") == count
        [connection] = made._open
        assert connection._stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_body_that_ends_early_is_told_if_anybody_listens(serve):
    data = b"POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"
    said = _raw(serve().port, data, half_close=True)
    assert b"the body ended after 3 of 10 bytes" in said


@pytest.mark.parametrize(
    "sent", [b"POST /ec", b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"]
)
def test_a_slow_client_is_sent_away_and_its_thread_ends(serve, sent):
    made = serve(request_s=0.3)
    said = _raw(made.port, sent)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.3 s" in said
    _await(lambda: made.connections == 0)


def test_a_client_that_drips_has_no_more_time_than_one_that_stops(serve):
    made = serve(request_s=0.5)
    with socket.create_connection(("127.0.0.1", made.port), timeout=DEADLINE_S) as line:
        line.settimeout(0.05)
        said = b""
        for _ in range(2000):
            try:
                line.sendall(b"x")
                chunk = line.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if not chunk:
                break
            said += chunk
        assert b" 408 " in said
    _await(lambda: made.connections == 0)


def test_an_idle_client_is_closed_without_a_word(serve):
    made = serve(idle_s=0.2)
    assert _raw(made.port, b"") == b""
    _await(lambda: made.connections == 0)


def test_slow_clients_do_not_hold_up_others(serve):
    made = serve(request_s=30.0)
    slow = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(20)]
    try:
        for line in slow:
            line.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
        with FakeScheduler(made.port) as quick:
            assert quick.call("POST", "/echo", {"a": 1}) == (200, {"a": 1})
    finally:
        for line in slow:
            line.close()
    _await(lambda: made.connections == 0)


def test_more_clients_than_allowed_are_sent_away_until_others_leave(serve):
    made = serve(connections=2)
    one, two = FakeScheduler(made.port), FakeScheduler(made.port)
    try:
        for each in (one, two):
            assert each.call("POST", "/echo", {}) == (200, {})
        assert _raw(made.port, b"") == b""
    finally:
        one.close()
        two.close()
    _await(lambda: made.connections == 0)
    with FakeScheduler(made.port) as later:
        assert later.call("POST", "/echo", {}) == (200, {})


def test_a_handler_that_fails_answers_500_and_the_next_request_works(serve):
    def fail(body, headers):
        raise ValueError("a bug")

    def refuse(body, headers):
        raise HttpError(409, "not today")

    made = serve(Route("GET", "/bug", fail), Route("GET", "/refused", refuse))
    with FakeScheduler(made.port) as client:
        status, answer = client.call("GET", "/bug")
        assert (status, "the log says more" in answer["error"]) == (500, True)
        assert client.call("GET", "/refused") == (409, {"error": "not today"})
        assert client.call("POST", "/refused", {})[0] == 405
        assert client.call("GET", "/nowhere")[0] == 404


def test_stopping_ends_idle_clients_and_lets_answers_through():
    entered, leave = threading.Event(), threading.Event()

    def slowly(body, headers):
        entered.set()
        assert leave.wait(DEADLINE_S)
        return Response(b'"done"')

    made = Server([Route("GET", "/slow", slowly)])
    made.start()
    idle = FakeScheduler(made.port)
    assert idle.call("GET", "/nothing")[0] == 404
    answers: list[object] = []
    with FakeScheduler(made.port) as busy:
        asking = threading.Thread(target=lambda: answers.append(busy.call("GET", "/slow")))
        asking.start()
        assert entered.wait(DEADLINE_S)
        stopping = threading.Thread(target=made.stop)
        stopping.start()
        leave.set()
        asking.join(DEADLINE_S)
        stopping.join(DEADLINE_S)
    idle.close()
    assert answers == [(200, "done")]
    assert made.connections == 0


def _await(claim):
    done = threading.Event()
    for _ in range(6000):
        if claim():
            return
        done.wait(0.01)
    raise AssertionError("what was waited for did not happen")
