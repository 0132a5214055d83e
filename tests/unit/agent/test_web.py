import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from aliquot.errors import UserError
from deviceplugin.telemetry.web import Page, Web, text_page

LOOPBACK = ("127.0.0.1", 0)
state = {"problem": ""}


def broken(query: str) -> Page:
    raise ZeroDivisionError("oh")


@pytest.fixture
def web() -> Iterator[Web]:
    state["problem"] = ""
    server = Web(
        LOOPBACK,
        {
            "/readyz": lambda _: text_page(state["problem"]),
            "/metrics": lambda query: Page(f"a {len(query)}\n".encode(), content_type="text/x"),
            "/broken": broken,
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
    assert get(web, "/") == (404, "there are /broken, /metrics, /readyz\n")
    assert get(web, "/broken") == (500, "oh\n")


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
