"""The dashboard over HTTP: the page, its few files, and `/view`; all of it read-only."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from urllib.parse import parse_qs

from scheduler_ext.connection import HttpError, Limits, Response
from scheduler_ext.dashboard.dashboard import Dashboard, UnknownNodeError
from scheduler_ext.server import Route

__all__ = ["VIEWER_LIMITS", "page_routes", "view_routes"]

VIEWER_LIMITS = Limits(body_bytes=0, head_bytes=16 << 10, idle_s=60.0, connections=128)

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SAFETY = {
    # Nothing but our own files, whatever a pod's name might contain.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def view_routes(dashboard: Dashboard, not_ready: Callable[[bool], str]) -> list[Route]:
    def view(_: bytes, headers: Mapping[str, str]) -> Response:
        if text := not_ready(False):
            raise HttpError(503, text)
        asked = parse_qs(headers[":query"], keep_blank_values=True)
        history = "history" in asked
        try:
            if name := asked.get("node", [""])[0]:
                encoded = dashboard.node(name, history=history)
            else:
                encoded = dashboard.cluster(history=history)
        except UnknownNodeError:
            raise HttpError(404, f"no node {name[:300]} reports GPUs") from None
        zipped = "gzip" in headers.get("accept-encoding", "").lower()
        more = {"Content-Encoding": "gzip"} if zipped else {}
        return Response(
            encoded.zipped if zipped else encoded.plain,
            headers={"Cache-Control": "no-store", "Vary": "Accept-Encoding", **_SAFETY, **more},
        )

    return [Route("GET", "/view", view)]


def page_routes() -> list[Route]:
    """`/` is the page; its files are next to it."""
    routes = []
    for file in sorted(files("scheduler_ext.dashboard").joinpath("page").iterdir(), key=str):
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is None:
            continue
        path = "/" if file.name == "index.html" else f"/{file.name}"
        routes.append(Route("GET", path, _file(file.read_bytes(), kind)))
    return routes


def _file(content: bytes, kind: str) -> Callable[[bytes, Mapping[str, str]], Response]:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    # Asked for each time, and sent only when it changed: after an upgrade nobody has an old page.
    headers = {"Cache-Control": "no-cache", "ETag": tag, **_SAFETY}

    def answer(_: bytes, given: Mapping[str, str]) -> Response:
        if given.get("if-none-match") == tag:
            return Response(b"", 304, kind, headers=headers)
        return Response(content, 200, kind, headers=headers)

    return answer
