"""The cluster's DNS: answers names of Services with their addresses, and nothing else."""

import socketserver
import ssl
import struct
import sys
import urllib.error
import urllib.request
from json import load
from pathlib import Path

__all__ = ["answer", "question"]

HEADER = struct.Struct("!6H")
ADDRESS_RECORD, INTERNET = 1, 1
NO_ERROR, NO_SUCH_NAME = 0, 3
TTL_S = 5


def question(packet: bytes) -> tuple[int, list[str], int, bytes]:
    """Number, labels, wanted type, and the question as it stands."""
    number = HEADER.unpack_from(packet)[0]
    labels, place = [], HEADER.size
    while length := packet[place]:
        labels.append(packet[place + 1 : place + 1 + length].decode("ascii", "replace").lower())
        place += 1 + length
    (wanted,) = struct.unpack_from("!H", packet, place + 1)
    return number, labels, wanted, packet[HEADER.size : place + 5]


def answer(number: int, asked: bytes, addresses: list[str], code: int) -> bytes:
    records = b"".join(
        struct.pack("!HHHIH", 0xC00C, ADDRESS_RECORD, INTERNET, TTL_S, 4)
        + bytes(map(int, address.split(".")))
        for address in addresses
    )
    return HEADER.pack(number, 0x8580 | code, 1, len(addresses), 0, 0) + asked + records


class Services:
    """Looks Services up in the API server, each time anew: tests restart everything."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(certificate, key)

    def addresses(self, labels: list[str]) -> list[str] | None:
        """None: there is no such name. `labels` end in `svc.cluster.local`."""
        if labels[2:] != ["svc", "cluster", "local"]:
            return None
        name, namespace = labels[:2]
        url = f"{self._server}/api/v1/namespaces/{namespace}/services/{name}"
        try:
            with urllib.request.urlopen(url, context=self._context, timeout=30) as response:
                address = load(response)["spec"].get("clusterIP", "None")
        except urllib.error.HTTPError:
            return None
        return [] if address == "None" else [address]


def main() -> None:
    bind, server, *files = sys.argv[1:]
    services = Services(server, *map(Path, files))

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            packet, socket = self.request
            try:
                number, labels, wanted, asked = question(packet)
            except (IndexError, struct.error):
                return
            found = services.addresses(labels)
            given = found if found and wanted == ADDRESS_RECORD else []
            code = NO_SUCH_NAME if found is None else NO_ERROR
            socket.sendto(answer(number, asked, given, code), self.client_address)

    with socketserver.ThreadingUDPServer((bind, 53), Handler) as serving:
        serving.serve_forever()


if __name__ == "__main__":
    main()
