"""Certificates to sign documents with, from a certification authority that exists for the tests only. Portal: 11.1"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
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
DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.12")


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as objects and as the texts of their files."""

    certificate: x509.Certificate
    key: object

    @property
    def certificate_pem(self):
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self):
        return key_text(self.key)

    @property
    def der(self):
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pair(self):
        """The body of a request that stores it."""
        return {"certificate": self.certificate_pem, "key": self.key_pem}


@cache
def rsa_key(name="signer", bits=2048):
    """The private key of that name, made once a process: making one takes longer than most tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def key_text(key, password=None):
    """A private key as PEM, encrypted where there is a password."""
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


@cache
def authority():
    """The authority that issues where nothing else is said; a validator of signatures trusts its certificate."""
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
    tin="C20880050010",
    registration="202001234567",
    *,
    not_before=None,
    not_after=None,
    subject=None,
    key=None,
    by=None,
):
    """A certificate of an organisation that is the taxpayer `tin`, with the registration number; valid now.

    The instants say otherwise. `subject` changes members of the subject, {OID: text}, and None leaves one out; `by` is
    who issues it, another Issued or "itself".
    """
    names = {
        COUNTRY: "MY",
        ORGANISATION: "Kopi Tiga Sdn. Bhd.",
        TIN: tin,
        REGISTRATION: registration,
    }
    names = {**names, COMMON_NAME: "Kopi Tiga Sdn. Bhd.", **(subject or {})}
    key, now = key or rsa_key(), datetime.now(UTC)
    by = Issued(None, key) if by == "itself" else by or authority()
    issuer = by.certificate.subject if by.certificate else _name(names)
    begin, end = not_before or now - timedelta(days=1), not_after or now + timedelta(days=365)
    built = _builder(_name(names), issuer, key, begin, end)
    built = built.add_extension(
        _usage(digital_signature=True, content_commitment=True), critical=True
    )
    built = built.add_extension(x509.ExtendedKeyUsage([DOCUMENT_SIGNING]), critical=False)
    return Issued(built.sign(by.key, hashes.SHA256()), key)


def _builder(subject, issuer, key, not_before, not_after):
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )


def _name(names):
    """In the order given, which is how a certificate encodes it; an absent member has the text None."""
    return x509.Name(
        [x509.NameAttribute(oid, text) for oid, text in names.items() if text is not None]
    )


def _usage(**used):
    names = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
    usages = dict.fromkeys([*names.split(), "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(**{**usages, **used})
