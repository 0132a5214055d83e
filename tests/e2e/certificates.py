"""The cluster's certificate authority, and who it vouches for."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair"]

LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Pair:
    """Files with a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs everything in the cluster; its files lie in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("aliquot-e2e")
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.root = folder / "ca.crt"
        self.root.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, user: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> Pair:
        """For a client and, where it has `hosts`, a server too."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(user, groups), key.public_key()).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        signed = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(_pem(key))
        return pair

    def service_account_key(self) -> Path:
        path = self.folder / "service-accounts.key"
        path.write_bytes(_pem(rsa.generate_private_key(65537, 2048)))
        return path

    def kubeconfig(self, name: str, server: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A file with which `user` reaches the API server."""
        pair = self.issue(name, user, groups)
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "e2e",
                            "cluster": {
                                "server": server,
                                "certificate-authority": str(self.root),
                            },
                        }
                    ],
                    "users": [
                        {
                            "name": name,
                            "user": {
                                "client-certificate": str(pair.certificate),
                                "client-key": str(pair.key),
                            },
                        }
                    ],
                    "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
                    "current-context": "e2e",
                }
            )
        )
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )


def _name(user: str, groups: tuple[str, ...] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
