"""Signing certificates from a certification authority for tests. Portal: 11.1"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

COUNTRY, ORGANISATION, COMMON_NAME = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COMMON_NAME,
)
TIN = NameOID.ORGANIZATION_IDENTIFIER  # 2.5.4.97
REGISTRATION = NameOID.SERIAL_NUMBER  # 2.5.4.5
USAGES = (
    "digital_signature content_commitment key_encipherment data_encipherment "
    "key_agreement key_cert_sign crl_sign encipher_only decipher_only"
)
DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.12")


#: A key of a certificate. The portal accepts RSA keys only.
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as objects and as PEM."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return key_text(self.key)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pair(self) -> dict[str, str]:
        """Return the body of a request that stores the certificate."""
        return {"certificate": self.certificate_pem, "key": self.key_pem}


@cache
def rsa_key(name: str = "signer", bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the private key of a name, generated once per process because that is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def key_text(key: PrivateKeyTypes, password: str | None = None) -> str:
    """Return a private key as PEM, encrypted if there is a password."""
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


@cache
def authority() -> Issued:
    """Return the default authority, which the sandbox's validator of signatures trusts."""
    names = {
        COUNTRY: "MY",
        ORGANISATION: "Contoh Amanah Sdn Bhd",
        COMMON_NAME: "Contoh Test Issuing CA",
    }
    key = rsa_key("authority")
    now = datetime.now(UTC)
    built = _builder(
        _name(names), _name(names), key, now - timedelta(days=3650), now + timedelta(days=3650)
    )
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Issued(built.sign(key, hashes.SHA256()), key)


def issued(
    tin: str | None = "C20880050010",
    registration: str | None = "202001234567",
    *,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    subject: Mapping[x509.ObjectIdentifier, str | None] | None = None,
    key: PrivateKey | None = None,
    by: Issued | Literal["itself"] | None = None,
) -> Issued:
    """Return a certificate of an organisation, valid now by default.

    `subject` replaces members of the subject; None removes one. `by` is the issuer, the authority
    by default.
    """
    names = {
        COUNTRY: "MY",
        ORGANISATION: "Kopi Tiga Sdn. Bhd.",
        TIN: tin,
        REGISTRATION: registration,
    }
    names = {**names, COMMON_NAME: "Kopi Tiga Sdn. Bhd.", **(subject or {})}
    key, now = key or rsa_key(), datetime.now(UTC)
    if by == "itself":
        issuer, issuer_key = _name(names), key
    else:
        by = by or authority()
        issuer, issuer_key = by.certificate.subject, by.key
    begin, end = not_before or now - timedelta(days=1), not_after or now + timedelta(days=365)
    built = _builder(_name(names), issuer, key, begin, end)
    built = built.add_extension(
        usage(digital_signature=True, content_commitment=True), critical=True
    )
    built = built.add_extension(x509.ExtendedKeyUsage([DOCUMENT_SIGNING]), critical=False)
    return Issued(built.sign(issuer_key, hashes.SHA256()), key)


def write_pair(folder: Path, made: Issued) -> dict[str, str]:
    """Write a certificate and its key, and return the variables of a configured certificate."""
    for name, text in made.pair.items():
        (folder / name).write_text(text)
    return {
        "SIGNING_CERTIFICATE_FILE": str(folder / "certificate"),
        "SIGNING_KEY_FILE": str(folder / "key"),
    }


def make_server_certificate(name: x509.GeneralName) -> Issued:
    """Return a self-signed certificate of a TLS server."""
    key, now = rsa_key("tls"), datetime.now(UTC)
    subject = _name({COMMON_NAME: str(name.value)})
    built = _builder(subject, subject, key, now - timedelta(days=1), now + timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return Issued(built.sign(key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )


def _name(names: Mapping[x509.ObjectIdentifier, str | None]) -> x509.Name:
    """Return a name with its members in the given order, without those that are None."""
    return x509.Name(
        [x509.NameAttribute(oid, text) for oid, text in names.items() if text is not None]
    )


def usage(**used: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**{**dict.fromkeys(USAGES.split(), False), **used})
