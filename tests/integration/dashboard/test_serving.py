"""What the dashboard's port serves, to whom, and what it does not."""

import socket

from aliquot.protocol import view
from aliquot.protocol.view import ClusterView
from tests.extender_cluster import gpu_node


def test_the_page_and_all_that_it_loads_come_from_here(extender, fetch):
    port = extender().dashboard_port
    status, headers, page = fetch(port, "/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http" not in page, "the page loads nothing from elsewhere"
    without_script = page.partition(b"<noscript>")[2].partition(b"</noscript>")[0]
    assert b"aliquot top" in without_script
    for path in ("/app.js", "/style.css", "/icon.svg"):
        status, headers, _ = fetch(port, path)
        assert status == 200
        assert headers["cache-control"] == "no-cache"
        status, _, body = fetch(port, path, **{"If-None-Match": headers["etag"]})
        assert (status, body) == (304, b"")


def test_viewers_reach_nothing_else(extender, fetch):
    running = extender()
    for method, path in (
        ("POST", "/scheduler/filter"),
        ("POST", "/scheduler/bind"),
        ("GET", "/explain"),
        ("GET", "/metrics"),
        ("POST", "/mutate"),
        ("GET", "/../routes.py"),
        ("GET", "/__init__.py"),
    ):
        headers = {"Content-Length": "0"}
        status, _, _ = fetch(running.dashboard_port, path, method, **headers)
        assert status == 404, path
    assert fetch(running.dashboard_port, "/view", "POST", **{"Content-Length": "0"})[0] == 405


def test_the_view_is_zipped_for_who_takes_it_and_never_kept(server, extender, fetch):
    server.add(gpu_node("a"))
    running = extender()
    for port in (running.dashboard_port, running.port):
        status, headers, plain = fetch(port, "/view")
        assert status == 200
        assert "content-encoding" not in headers
        assert headers["cache-control"] == "no-store"
        _, headers, unzipped = fetch(port, "/view", **{"Accept-Encoding": "gzip, deflate"})
        assert headers["content-encoding"] == "gzip"
        for body in (plain, unzipped):
            assert [node.name for node in view.decode(body, ClusterView).nodes] == ["a"]


def test_a_taken_port_costs_the_dashboard_and_not_the_scheduling(extender, fetch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running = extender(dashboard=f"127.0.0.1:{taken.getsockname()[1]}")
        assert running.dashboard_port is None
        assert fetch(running.port, "/readyz")[0] == 200


def test_it_can_be_switched_off(extender):
    assert extender(dashboard="off").dashboard_port is None
