"""Which addresses of node agents are asked: they come from annotations that a node can write."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Address", "AddressError", "agent_address"]


class AddressError(ValueError):
    """An address that is not asked; the text says why."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def agent_address(url: str) -> Address:
    """Only `http://IP[:PORT]`: a node cannot choose what is looked up, or what is asked for there.

    Link-local addresses are refused because clouds give out credentials on one of them.
    """
    shown = repr(url[:80])
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        host = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        raise AddressError(f"{shown} is not like http://10.0.0.1:9400") from None
    if parts.scheme != "http" or "@" in parts.netloc or parts.path.strip("/"):
        raise AddressError(f"{shown} is not like http://10.0.0.1:9400")
    if parts.query or parts.fragment or getattr(host, "scope_id", None):
        raise AddressError(f"{shown} is not like http://10.0.0.1:9400")
    plain = getattr(host, "ipv4_mapped", None) or host
    if plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain.is_reserved:
        raise AddressError(f"{shown} is no address of a pod or node")
    return Address(str(host), port)
