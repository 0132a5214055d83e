import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from aliquot.errors import UserError
from deviceplugin.telemetry.web import Page, Web, text_page
from tests.patience import eventually

LOOPBACK = ("127.0.0.1", 0)
state = {"problem": ""}


def broken(query: str) -> Page:
    raise ZeroDivisionError("oh")


class Held:
    """A page that is not ready before somebody lets it be."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    def __call__(self, query: str) -> Page:
        self.entered.set()
        self.leave.wait(60)
        return Page(b"late\n")


held = Held()


@pytest.fixture
def web() -> Iterator[Web]:
    state["problem"] = ""
    server = Web(
        LOOPBACK,
        {
            "/readyz": lambda _: text_page(state["problem"]),
            "/metrics": lambda query: Page(f"a {len(query)}\n".encode(), content_type="text/x"),
            "/broken": broken,
            "/held": held,
        },
    )
    server.start()
    yield server
    server.stop()


def get(web: Web, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_probe_hears_what_is_the_matter(web: Web):
    assert get(web, "/readyz") == (200, "ok\n")
    state["problem"] = "not registered"
    assert get(web, "/readyz") == (503, "not registered\n")


def test_a_remark_goes_with_all_being_well_only():
    assert text_page("", "nothing to do") == Page(b"ok: nothing to do\n")
    assert text_page("broken", "nothing to do") == text_page("broken")


def test_a_page_may_be_asked_with_parameters_and_hears_of_them(web: Web):
    assert get(web, "/metrics") == (200, "a 0\n")
    assert get(web, "/metrics?name=a") == (200, "a 6\n")


def test_what_there_is_not_and_what_fails_are_said_so(web: Web):
    assert get(web, "/") == (404, "there are /broken, /held, /metrics, /readyz\n")
    assert get(web, "/broken") == (500, "oh\n")


def test_a_client_that_hangs_up_is_not_worth_a_word(
    web: Web, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    caplog.set_level("DEBUG")
    with socket.create_connection((LOOPBACK[0], web.port), timeout=60) as client:
        client.sendall(b"GET /held HTTP/1.1\r\n\r\n")
        assert held.entered.wait(60)
        # Closed by a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    held.leave.set()
    (said,) = eventually(lambda: [each for each in caplog.records if "has left" in each.msg])
    assert said.levelname == "DEBUG"
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_named(web: Web):
    with pytest.raises(UserError, match=rf"127.0.0.1:{web.port}: .*choose another --listen"):
        Web(("127.0.0.1", web.port), {})


def test_all_interfaces_are_served_by_default():
    web = Web(("", 0), {"/livez": lambda _: text_page("")})
    web.start()
    try:
        assert get(web, "/livez") == (200, "ok\n")
    finally:
        web.stop()
