"""Which server, as whom: kubeconfigs, credential plugins and service accounts, also over TLS."""

import base64
import re
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aliquot.kubernetes import credentials, paths
from aliquot.kubernetes.authentication import TokenFile
from aliquot.kubernetes.client import connect
from aliquot.kubernetes.errors import NoClusterError, UnreachableError
from aliquot.kubernetes.objects import Node, Pod
from simcluster.apiserver import ApiServer, node

PLUGIN = """#!/bin/sh
case "$KUBERNETES_EXEC_INFO" in
*'"client.authentication.k8s.io/VERSION"'*) token=of-the-plugin ;;
esac
echo '{"status": {"token": "'$token'"}}'
"""


def kubeconfig(server: ApiServer, folder: Path, user: dict[str, object]) -> Path:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [
                    {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
                ],
                "current-context": "x",
            }
        )
    )
    return path


def test_connect_takes_server_user_and_namespace_from_a_kubeconfig(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add(node("n1"))
    path = kubeconfig(server, tmp_path, {"token": "secret"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'not there'}:{path}")
    client = connect()
    assert client.namespace == "team"
    client.get(paths.node_path("n1"), Node)
    assert server.requests[-1].headers["Authorization"] == "Bearer secret"
    assert server.requests[-1].headers["User-Agent"].startswith("aliquot/")
    client.close()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_connect_asks_credential_plugins(server: ApiServer, tmp_path: Path, version: str) -> None:
    server.add(node("n1"))
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN.replace("VERSION", version))
    plugin.chmod(0o755)
    user = {
        "exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(plugin)}
    }
    client = connect(kubeconfig(server, tmp_path, user))
    client.get(paths.node_path("n1"), Node)
    assert server.requests[-1].headers["Authorization"] == "Bearer of-the-plugin"
    client.close()


def test_connect_needs_no_user(server: ApiServer, tmp_path: Path) -> None:
    path = kubeconfig(server, tmp_path, {})
    told = yaml.safe_load(path.read_text())
    del told["contexts"][0]["context"]["user"]
    told["users"] = None
    path.write_text(yaml.safe_dump(told))
    client = connect(path)
    assert client.list(paths.PODS, Pod).items == []
    client.close()


@pytest.mark.parametrize("text", ["", "clusters: 5", "{", "clusters: []\ncontexts: []\n"])
def test_an_unusable_kubeconfig_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NoClusterError, match="KUBECONFIG"):
        connect(path)
    with pytest.raises(NoClusterError, match="not found"):
        connect(tmp_path / "none")


def test_a_bad_certificate_of_a_kubeconfig_is_no_traceback(
    server: ApiServer, tmp_path: Path
) -> None:
    path = kubeconfig(server, tmp_path, {"token": "secret"})
    told = yaml.safe_load(path.read_text())
    wrong = base64.b64encode(b"no certificate").decode()
    told["clusters"][0]["cluster"]["certificate-authority-data"] = wrong
    path.write_text(yaml.safe_dump(told))
    with pytest.raises(NoClusterError):
        connect(path)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed one with its key, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api server")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def secure_server(certificate: Path) -> Iterator[ApiServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with ApiServer(tls) as standing:
        yield standing


@pytest.fixture
def account(
    secure_server: ApiServer,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A pod's service account, as the kubelet mounts it."""
    (tmp_path / "token").write_text("first")
    (tmp_path / "namespace").write_text("aliquot")
    (tmp_path / "ca.crt").write_bytes(certificate.read_bytes())
    host, _, port = secure_server.url.removeprefix("https://").partition(":")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", tmp_path)
    return tmp_path


def test_a_pod_uses_its_service_account_and_reads_a_rotated_token(
    secure_server: ApiServer, account: Path
) -> None:
    secure_server.add(node("n1"))
    client = connect()
    assert client.namespace == "aliquot"
    client.get(paths.node_path("n1"), Node)
    (account / "token").write_text("second")
    secure_server.fail(401, "Unauthorized", "the token has expired")
    client.get(paths.node_path("n1"), Node)
    sent = [each.headers["Authorization"] for each in secure_server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]
    client.close()


def test_a_watch_over_tls_can_be_ended_while_it_waits(
    secure_server: ApiServer, account: Path
) -> None:
    client = connect()
    for _ in range(5):
        watch = client.watch(paths.PODS, Pod, client.list(paths.PODS, Pod).resource_version)
        reader = threading.Thread(target=list, args=(watch,))
        reader.start()
        watch.close()
        reader.join(60)
        assert not reader.is_alive()
    client.close()


def test_a_server_with_a_strangers_certificate_is_not_trusted(
    secure_server: ApiServer, account: Path, tmp_path: Path
) -> None:
    path = kubeconfig(secure_server, tmp_path, {"token": "secret"})
    client = connect(path)
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        client.list(paths.PODS, Pod)
    assert secure_server.requests == []
    client.close()


def test_a_client_certificate_of_a_kubeconfig_is_shown(certificate: Path, tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.load_verify_locations(certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    pem = base64.b64encode(certificate.read_bytes()).decode()
    with ApiServer(tls) as server:
        path = kubeconfig(
            server, tmp_path, {"client-certificate-data": pem, "client-key-data": pem}
        )
        trust(path, certificate)
        client = connect(path)
        assert client.list(paths.PODS, Pod).items == []
        client.close()


def trust(path: Path, certificate: Path) -> None:
    """By a name that is relative to the kubeconfig's folder."""
    (path.parent / "ca.pem").write_bytes(certificate.read_bytes())
    told = yaml.safe_load(path.read_text())
    told["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    path.write_text(yaml.safe_dump(told))


class Proxy(socketserver.StreamRequestHandler):
    """Connects to whatever it is asked for, once, and remembers how it was asked."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        request = self.rfile.readline().decode()
        headers = list(iter(lambda: self.rfile.readline().decode().strip(), ""))
        self.asked.extend([request, *headers])
        host, _, port = request.split()[1].partition(":")
        with socket.create_connection((host, int(port))) as line:
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                for ready in select.select([line, self.connection], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    (line if ready is self.connection else self.connection).sendall(data)


@pytest.mark.parametrize("by", ["kubeconfig", "environment"])
def test_a_proxy_is_gone_through(
    secure_server: ApiServer,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    Proxy.asked.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"http://me:secret@127.0.0.1:{proxy.server_address[1]}"
        path = kubeconfig(secure_server, tmp_path, {"token": "secret"})
        trust(path, certificate)
        if by == "environment":
            monkeypatch.setenv("HTTPS_PROXY", url)
        else:
            told = yaml.safe_load(path.read_text())
            told["clusters"][0]["cluster"]["proxy-url"] = url
            path.write_text(yaml.safe_dump(told))
        client = connect(path)
        assert client.list(paths.PODS, Pod).items == []
        client.close()
        proxy.shutdown()
    target = secure_server.url.removeprefix("https://")
    assert Proxy.asked[0].startswith(f"CONNECT {target} ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}" in Proxy.asked


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "is not installed (get it from us)"),
        ("#!/bin/sh\necho 'log in first' >&2; exit 1", "log in first"),
        ("#!/bin/sh\necho nonsense", "its answer is none"),
        ("#!/bin/sh\necho '{}'", "gives no token"),
    ],
)
def test_a_credential_plugin_that_fails_says_why(
    server: ApiServer, tmp_path: Path, script: str | None, said: str
) -> None:
    if script is not None:
        (tmp_path / "plugin").write_text(script)
        (tmp_path / "plugin").chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "installHint": "get it from us",
    }
    client = connect(kubeconfig(server, tmp_path, {"exec": plugin}))
    with pytest.raises(UnreachableError, match=re.escape(said)):
        client.list(paths.PODS, Pod)
    client.close()


def test_a_user_of_an_outdated_kind_is_told_so(server: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(NoClusterError, match="auth-provider"):
        connect(kubeconfig(server, tmp_path, {"auth-provider": {"name": "gcp"}}))


def test_a_context_that_is_not_there_is_named(server: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(NoClusterError, match="no context 'other'"):
        connect(kubeconfig(server, tmp_path, {}), "other")


def test_a_token_that_another_thread_has_read_anew_is_tried(tmp_path: Path) -> None:
    """Both asked with the old one; whoever hears of it second must not give up."""
    (tmp_path / "token").write_text("first")
    account = TokenFile(tmp_path / "token")
    refused = account.header()
    assert account.replace(refused) == "", "there is no other one yet"
    (tmp_path / "token").write_text("second")
    assert [account.replace(refused) for _ in range(2)] == ["Bearer second"] * 2
