"""Reads a kubeconfig: the server of a context, and as whom it is asked."""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from aliquot.kubernetes.authentication import Plugin, TokenFile, bearer, password
from aliquot.kubernetes.http import Authentication, HttpClient

__all__ = ["read_kubeconfig"]

T = TypeVar("T")


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str | None = None


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str | None = None


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = "default"


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    """kubectl writes null where a list would be empty."""

    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


def read_kubeconfig(path: Path, context: str | None) -> tuple[HttpClient, str]:
    """And the context's namespace. An OSError or a ValueError says what is wrong."""
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"the kubeconfig {path} was not found")
    try:
        told = msgspec.convert(yaml.safe_load(path.read_text()), _File)
        wanted = context or told.current_context
        if not wanted:
            raise ValueError("it has no current context")
        chosen = _named("context", wanted, {one.name: one.context for one in told.contexts or ()})
        clusters = {one.name: one.cluster for one in told.clusters or ()}
        users = {one.name: one.user or _User() for one in told.users or ()}
        cluster = _named("cluster", chosen.cluster, clusters)
        user = _named("user", chosen.user, users) if chosen.user else _User()
        client = HttpClient(
            cluster.server,
            tls=_tls(cluster, user, path.parent),
            authentication=_authentication(user, path.parent),
            proxy=cluster.proxy_url,
        )
    except (ValueError, yaml.YAMLError, ssl.SSLError) as error:
        raise ValueError(f"the kubeconfig {path} cannot be used: {error}") from None
    return client, chosen.namespace


def _named(kind: str, name: str, known: dict[str, T]) -> T:
    if name not in known:
        raise ValueError(f"it has no {kind} {name!r}")
    return known[name]


def _authentication(user: _User, folder: Path) -> Authentication | None:
    if user.token_file:
        return TokenFile(folder / user.token_file)
    if user.token:
        return bearer(user.token)
    if user.exec is not None:
        plugin = user.exec
        # With a folder in its name it is beside the kubeconfig; without, on the PATH.
        command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
        return Plugin(
            (command, *(plugin.args or ())),
            {each.name: each.value for each in plugin.env or ()},
            plugin.api_version,
            plugin.install_hint or "",
        )
    if user.username and user.password:
        return password(user.username, user.password)
    if user.auth_provider is not None:
        raise ValueError("its user has an auth-provider, which Kubernetes has replaced by exec")
    return None


def _tls(cluster: _Cluster, user: _User, folder: Path) -> ssl.SSLContext | None:
    authority = cluster.certificate_authority or cluster.certificate_authority_data
    if not authority and not cluster.server.startswith("https:"):
        return None
    if cluster.insecure_skip_tls_verify:
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    elif cluster.certificate_authority_data:
        pem = _decoded(cluster.certificate_authority_data).decode("ascii")
        tls = ssl.create_default_context(cadata=pem)
    elif cluster.certificate_authority:
        tls = ssl.create_default_context(cafile=folder / cluster.certificate_authority)
    else:
        tls = ssl.create_default_context()
    if user.client_certificate_data or user.client_certificate:
        _load_certificate(tls, user, folder)
    return tls


def _load_certificate(tls: ssl.SSLContext, user: _User, folder: Path) -> None:
    """OpenSSL takes it from files only."""
    with tempfile.TemporaryDirectory() as own:
        certificate, key = folder / user.client_certificate, folder / user.client_key
        if user.client_certificate_data:
            certificate = Path(own, "certificate")
            certificate.write_bytes(_decoded(user.client_certificate_data))
        if user.client_key_data:
            key = Path(own, "key")
            key.touch(0o600)
            key.write_bytes(_decoded(user.client_key_data))
        tls.load_cert_chain(certificate, key)


def _decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)
