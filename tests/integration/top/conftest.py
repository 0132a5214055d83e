import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from aliquot.protocol import view
from tests.unit.top.views import CLUSTER

PROXY = "/api/v1/namespaces/aliquot-system/services/aliquot-extender:scheduler/proxy/view"


class Extender:
    """Answers for an extender, and for an API server in front of it."""

    def __init__(self) -> None:
        self.pages = {path: view.encode(CLUSTER) for path in ("/view", PROXY)}
        self.status = 200
        self.asked: list[str] = []
        extender = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                extender.asked.append(self.path)
                body = extender.pages.get(self.path, b'{"error": "there is no such page"}')
                self.send_response(extender.status if self.path in extender.pages else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def extender() -> Iterator[Extender]:
    made = Extender()
    made.start()
    yield made
    made.stop()
