"""Certificates of signers: read, described, trusted. Portal: 11.1, 11.3"""

import re
from base64 import b64decode
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import NameOID

DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.12")
#: object identifier -> what it may be called in the text of a name, beside its number
SHORT = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST|S",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
    NameOID.SERIAL_NUMBER: "serialNumber|SERIALNUMBER",
    NameOID.ORGANIZATION_IDENTIFIER: "organizationIdentifier",
    NameOID.EMAIL_ADDRESS: "E|emailAddress",
}


def decoded(text):
    """The bytes of base64 text, in which line ends are allowed. Raises ValueError."""
    return b64decode("".join(text.split()), validate=True)


def read_certificate(text):
    """The certificate in base64 DER, or None when it cannot be read."""
    try:
        certificate = x509.load_der_x509_certificate(decoded(text))
        # Each is parsed at its first use.
        _ = certificate.subject, certificate.issuer, certificate.extensions
        return certificate
    except (ValueError, TypeError, x509.DuplicateExtension, UnsupportedAlgorithm):
        return None


def subject_value(certificate, oid):
    """The first value of that kind in the subject, or None."""
    found = certificate.subject.get_attributes_for_oid(oid)
    return found[0].value if found else None


def is_named(text, name):
    """Whether the text is the name as RFC 2253 orders it: the last part first, `, ` between them. Portal: 11.3"""
    parts = ["\\+".join(map(spellings, part)) for part in reversed(name.rdns)]
    return re.fullmatch(", ".join(parts), text) is not None


def spellings(attribute):
    """A pattern of how one attribute may be written: its name short or as a number, its value escaped or not."""
    named = "|".join((re.escape(attribute.oid.dotted_string), SHORT.get(attribute.oid, "(?!)")))
    escaped = attribute.rfc4514_string().partition("=")[2]
    return f"(?:{named})=(?:{re.escape(str(attribute.value))}|{re.escape(escaped)})"


def verifying_key(certificate):
    """The RSA key, or None where it is of another kind or the certificate is not for signing documents."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPublicKey) and for_signing(certificate.extensions) else None


def for_signing(extensions):
    """What a certificate says of its use allows it; one that says nothing is taken. Portal: 11.1"""
    usage, extended = (
        extension(extensions, x509.KeyUsage),
        extension(extensions, x509.ExtendedKeyUsage),
    )
    return (usage is None or usage.content_commitment) and (
        extended is None or DOCUMENT_SIGNING in extended
    )


def extension(extensions, kind):
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def read_authorities(path):
    """The certificates of a PEM file. Raises ValueError."""
    try:
        return tuple(x509.load_pem_x509_certificates(Path(path).read_bytes()))
    except OSError as error:
        raise ValueError(str(error)) from None


def is_issued_by(certificate, authority):
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
