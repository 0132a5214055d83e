"""An authority of our own and what it signs: made, renewed and replaced by the clock alone.

A new authority is trusted for a while before it signs, and an old one stays trusted until it ends:
at every moment, what any replica serves is trusted by what any API server has read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Lifetimes", "Material", "MaterialError", "renewed"]

# Clocks of nodes differ: what is made now must be valid on one that is late.
_SKEW = timedelta(minutes=10)
_PEM = serialization.Encoding.PEM


class MaterialError(ValueError):
    """What is stored is not what we stored; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    authority: timedelta = timedelta(days=730)
    authority_reserve: timedelta = timedelta(days=180)
    """How long before its end an authority gets a successor; longer than a certificate lives."""
    serving: timedelta = timedelta(days=90)
    serving_reserve: timedelta = timedelta(days=30)
    settling: timedelta = timedelta(hours=1)
    """How long a new authority is only trusted, until every replica and API server knows it."""

    def __post_init__(self) -> None:
        if not self.settling < self.serving_reserve < self.serving < self.authority_reserve:
            raise ValueError("an authority must outlive what it signs, and settle before it is due")
        if not self.authority_reserve < self.authority:
            raise ValueError("an authority must live longer than its reserve")


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None
    """None when it is only trusted and will never sign again."""


@dataclass(frozen=True, slots=True)
class Material:
    authorities: tuple[Authority, ...]
    """From the oldest to the newest."""
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def trusted_pem(self) -> bytes:
        return b"".join(each.certificate.public_bytes(_PEM) for each in self.authorities)

    @property
    def serving_pem(self) -> bytes:
        """Certificate and key, as TLS servers read them."""
        return self.certificate.public_bytes(_PEM) + _key_pem(self.key)

    def encode(self) -> dict[str, bytes]:
        """The data of a Secret, under the names that other tools expect."""
        keys = (each.key for each in self.authorities if each.key)
        return {
            "ca.crt": self.trusted_pem,
            "ca.key": b"".join(_key_pem(key) for key in keys),
            "tls.crt": self.certificate.public_bytes(_PEM),
            "tls.key": _key_pem(self.key),
        }

    @classmethod
    def decode(cls, data: dict[str, bytes]) -> "Material":
        try:
            trusted = x509.load_pem_x509_certificates(data["ca.crt"])
            keys = {_public(key): key for key in _keys(data["ca.key"])}
            certificate = x509.load_pem_x509_certificate(data["tls.crt"])
            (key,) = _keys(data["tls.key"])
        except (KeyError, ValueError, TypeError) as error:
            raise MaterialError(f"the stored certificates cannot be read: {error!r}") from None
        if _public(key) != _public(certificate):
            raise MaterialError("the stored key does not belong to the stored certificate")
        authorities = [Authority(each, keys.get(_public(each))) for each in trusted]
        authorities.sort(key=lambda each: each.certificate.not_valid_before_utc)
        return cls(tuple(authorities), certificate, key)


def renewed(
    material: Material | None, hosts: Sequence[str], now: datetime, lifetimes: Lifetimes
) -> Material:
    """The same value when nothing is due, so that two replicas agree without talking."""
    authorities = [each for each in (material.authorities if material else ()) if _lives(each, now)]
    if not any(each.key for each in authorities) or _ends_within(
        authorities[-1].certificate, now, lifetimes.authority_reserve
    ):
        authorities.append(_new_authority(now, lifetimes))
    signer = _signer(authorities, now, lifetimes)
    certificate, key = (material.certificate, material.key) if material else (None, None)
    if (
        certificate is None
        or key is None
        or _ends_within(certificate, now, lifetimes.serving_reserve)
        or not _is_signed_by(certificate, signer)
        or set(_hosts(certificate)) != set(hosts)
    ):
        certificate, key = _sign(signer, hosts, now, lifetimes)
    kept = tuple(
        # A key that will not sign again is a key that cannot be stolen.
        each if _age(each, now) <= _age(signer, now) else Authority(each.certificate, None)
        for each in authorities
    )
    return Material(kept, certificate, key)


def _signer(authorities: list[Authority], now: datetime, lifetimes: Lifetimes) -> Authority:
    able = [each for each in authorities if each.key]
    settled = [each for each in able if _age(each, now) >= lifetimes.settling]
    # With nobody settled there is nothing to break: the very first one signs at once.
    return settled[-1] if settled else able[0]


def _new_authority(now: datetime, lifetimes: Lifetimes) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Each has a name of its own: verifiers look for an issuer by name first.
    name = _name(f"Aliquot webhook authority {serial % 2**32:08x}")
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), serial)
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def _sign(
    signer: Authority, hosts: Sequence[str], now: datetime, lifetimes: Lifetimes
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    assert signer.key is not None
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + lifetimes.serving, signer.certificate.not_valid_after_utc)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        x509.CertificateBuilder(
            signer.certificate.subject,
            _name("Aliquot webhook"),
            key.public_key(),
            x509.random_serial_number(),
        )
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, hosts)), critical=False)
        .add_extension(issuer, critical=False)
    )
    return builder.sign(signer.key, hashes.SHA256()), key


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _lives(authority: Authority, now: datetime) -> bool:
    return now < authority.certificate.not_valid_after_utc


def _age(authority: Authority, now: datetime) -> timedelta:
    return now - authority.certificate.not_valid_before_utc - _SKEW


def _ends_within(certificate: x509.Certificate, now: datetime, reserve: timedelta) -> bool:
    return certificate.not_valid_after_utc - now < reserve


def _is_signed_by(certificate: x509.Certificate, authority: Authority) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # a wrong name, a wrong key or a wrong signature each have their own type
        return False
    return True


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return names.value.get_values_for_type(x509.DNSName)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


_END = b"-----END PRIVATE KEY-----"


def _keys(pem: bytes) -> list[ec.EllipticCurvePrivateKey]:
    keys: list[ec.EllipticCurvePrivateKey] = []
    for block in pem.split(_END)[:-1]:
        key = serialization.load_pem_private_key(block + _END, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("a key is of another kind than ours")
        keys.append(key)
    return keys


def _public(holder: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    return holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
