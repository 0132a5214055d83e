"""The TLS context of the webhook's server, whose certificate changes while it serves."""

import os
import ssl

from scheduler_ext.certificates.material import Material

__all__ = ["ServingContext"]


class ServingContext:
    """`context` is for the server, for good; each handshake uses what was loaded last."""

    def __init__(self, material: Material) -> None:
        self._current = _context(material)
        self.context = _context(material)
        self.context.sni_callback = self._hand_over
        self._loaded = material

    def load(self, material: Material) -> None:
        """Whole contexts are exchanged: no handshake can meet a new certificate with an old key."""
        if material.serving_pem != self._loaded.serving_pem:
            self._current = _context(material)
        self._loaded = material

    def _hand_over(
        self,
        connection: ssl.SSLObject,
        host: str | None,  # noqa: ARG002 (called with it whether or not a name was sent)
        outer: ssl.SSLContext,  # noqa: ARG002
    ) -> None:
        connection.context = self._current


def _context(material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The interface wants a path. This one leads to memory, so that no key lies on a disk.
    file = os.memfd_create("aliquot-webhook")
    try:
        with open(file, "wb", closefd=False) as pem:
            pem.write(material.serving_pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context
