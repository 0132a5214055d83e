"""What becomes of connections: kept while both sides want them, and never just forgotten."""

import socket
import threading
from collections.abc import Iterator

import pytest

from aliquot.kubernetes.http import HttpClient
from tests.patience import PATIENCE_S, eventually

REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"


class Expired:
    """A credential plugin that has nothing newer, and fails."""

    def header(self) -> str:
        return "Bearer old"

    def replace(self, refused: str, /) -> str:
        raise OSError("the plugin does not answer")


@pytest.fixture
def refusing() -> Iterator[tuple[str, list[bytes]]]:
    """A server that refuses whoever calls once, and what it reads after that, up to the end."""
    read: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.settimeout(PATIENCE_S)
                line.recv(1 << 16)
                line.sendall(REFUSAL)
                read.append(line.recv(1))

        server = threading.Thread(target=serve)
        server.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", read
        server.join()


def test_a_stream_that_is_refused_is_closed_when_nobody_can_say_who_we_are(
    refusing: tuple[str, list[bytes]],
) -> None:
    url, read = refusing
    client = HttpClient(url, authentication=Expired(), proxy="")
    # Whoever holds the error holds what was open when it was raised, if that was not closed.
    with pytest.raises(OSError, match="does not answer") as held:
        client.stream("/", query={}, timeout_s=PATIENCE_S, silence_s=PATIENCE_S)
    eventually(lambda: read)
    assert read == [b""], "the server has seen the end"
    del held
