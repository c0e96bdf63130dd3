"""Signing certificates: parsing, subject, permitted use, trust. Portal: 11.1, 11.3"""

import re
from base64 import b64decode
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import NameOID

DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.12")
#: Object identifier -> short names, besides those of RFC 4514, that the text of a name may use.
SHORT = {
    NameOID.STATE_OR_PROVINCE_NAME: "S",
    NameOID.SERIAL_NUMBER: "serialNumber|SERIALNUMBER",
    NameOID.ORGANIZATION_IDENTIFIER: "organizationIdentifier",
    NameOID.EMAIL_ADDRESS: "E|emailAddress",
}


def decode_base64(text: str) -> bytes:
    """Return the bytes of base64 text, which may have line ends. Raises ValueError."""
    return b64decode("".join(text.split()), validate=True)


def read_certificate(text: str) -> x509.Certificate | None:
    """Return the certificate of base64 DER text, or None if it is invalid."""
    try:
        certificate = x509.load_der_x509_certificate(decode_base64(text))
        # Each is parsed at its first use.
        _ = certificate.subject, certificate.issuer, certificate.extensions
        return certificate
    except (ValueError, TypeError, x509.DuplicateExtension, UnsupportedAlgorithm):
        return None


def is_named(text: str, name: x509.Name) -> bool:
    """Return whether a text is the name in the order of RFC 2253, joined with `, `. Portal: 11.3"""
    parts = ["\\+".join(map(attribute_pattern, part)) for part in reversed(name.rdns)]
    return re.fullmatch(", ".join(parts), text) is not None


def attribute_pattern(attribute: x509.NameAttribute) -> str:
    """Return a pattern of the spellings of an attribute.

    Its name may be short or a number, its value escaped or not.
    """
    number, short = attribute.oid.dotted_string, SHORT.get(attribute.oid, "(?!)")
    name, _, escaped = attribute.rfc4514_string().partition("=")
    names = f"{re.escape(number)}|{re.escape(name)}|{short}"
    return f"(?:{names})=(?:{re.escape(str(attribute.value))}|{re.escape(escaped)})"


def verifying_key(certificate: x509.Certificate) -> RSAPublicKey | None:
    """Return the RSA key, or None for another kind of key or a certificate for other uses."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPublicKey) and allows_signing(certificate) else None


def allows_signing(certificate: x509.Certificate) -> bool:
    """Return whether the key usage allows document signing, or is absent. Portal: 11.1"""
    for extension in certificate.extensions:
        usage = extension.value
        if isinstance(usage, x509.KeyUsage) and not usage.content_commitment:
            return False
        if isinstance(usage, x509.ExtendedKeyUsage) and DOCUMENT_SIGNING not in usage:
            return False
    return True


def read_authorities(path: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file. Raises ValueError."""
    try:
        return tuple(x509.load_pem_x509_certificates(Path(path).read_bytes()))
    except (OSError, ValueError):
        raise ValueError("not a file of PEM certificates") from None


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
