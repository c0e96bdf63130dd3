"""Read signing certificates, format their names for signatures, and check them. Portal: 11.1"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from service.documents.signing.private_key import (
    UnusableCredentials,
    can_sign,
    find_key_problem,
    make_error,
    read_key,
)
from service.documents.ubl.parties import normalize_tin
from service.errors import violation
from service.json_types import JsonObject, Row

WARN_BEFORE = timedelta(days=30)
PATH = "/company/signing-certificate"
LONGEST_SERIAL = 160  # bits, by RFC 5280
OTHER_KEY = "key is not the private key of the certificate."

#: Form of the issuer's name -> (step through its parts, separator of name and value). The portal
#: compares the name as text; another form can help if it rejects one with DS326. Portal: 11.3, 11.5
ISSUER_FORMS = {"rfc2253": (-1, "="), "encoded": (1, "="), "rfc2253_blanks": (-1, " = ")}
DEFAULT_FORM = "rfc2253"

#: (member of the subject, its title, the column of the company that it must equal, the name of the
#: column, the portal's codes if the member is absent and if it differs).
IDENTITIES = (
    ("tin", "organisation identifier (2.5.4.97)", "tin_code", "TIN", "DS307", "DS311"),
    (
        "registration",
        "serial number of the subject (2.5.4.5)",
        "registration_number",
        "registration number",
        "DS306",
        "DS312",
    ),
)


class Certificate(NamedTuple):
    """The facts of a certificate; `tin` and `registration` are empty if the subject has none."""

    der: bytes
    subject: str
    issuer: str
    serial: int
    not_before: datetime
    not_after: datetime
    tin: str
    registration: str
    public_key: CertificatePublicKeyTypes


@dataclass(frozen=True, slots=True, repr=False)
class Signer:
    certificate: Certificate
    key: rsa.RSAPrivateKey

    def can_sign(self) -> bool:
        public = self.certificate.public_key
        assert isinstance(public, rsa.RSAPublicKey)  # as read_certificate has checked
        return can_sign(self.key, public)


def read_pair(
    certificate_pem: str,
    key_pem: str,
    password: str | None = None,
    *,
    issuer_form: str = DEFAULT_FORM,
    now: datetime | None = None,
) -> Signer:
    """Return the Signer of two PEM texts.

    Raises UnusableCredentials with all violations; with `now`, a certificate that is not valid then
    is one.
    """
    certificate = key = None
    violations: list[dict[str, str]] = []
    try:
        certificate = read_certificate(certificate_pem, issuer_form)
    except UnusableCredentials as error:
        violations += error.more["errors"]
    try:
        key = read_key(key_pem, password)
    except UnusableCredentials as error:
        violations += error.more["errors"]
    if certificate and now and certificate.not_after < now:
        wording = f"certificate expired on {certificate.not_after:%Y-%m-%d}."
        violations.append(violation("/certificate", "expired", wording))
    if certificate and now and now < certificate.not_before:
        wording = f"certificate is not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC."
        violations.append(violation("/certificate", "not_yet_valid", wording))
    if certificate and key and not violations and key.public_key() != certificate.public_key:
        violations.append(violation("/key", "match", OTHER_KEY))
    if violations or not certificate or not key:
        raise UnusableCredentials(violations)
    return Signer(certificate, key)


def read_certificate(pem: str, issuer_form: str = DEFAULT_FORM) -> Certificate:
    """Return the first certificate of a PEM text. Raises UnusableCredentials."""
    try:
        certificate = _extract_facts(x509.load_pem_x509_certificate(pem.encode()), issuer_form)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        wording = "certificate must be an X.509 certificate in PEM."
        raise make_error("/certificate", "format", wording) from None
    if not 0 < certificate.serial < 2**LONGEST_SERIAL:
        wording = (
            "The serial number of certificate must be a positive number "
            f"of at most {LONGEST_SERIAL} bits."
        )
        raise make_error("/certificate", "serial", wording)
    if problem := find_key_problem(certificate.public_key):
        wording = f"The key of certificate {problem[1]}"
        raise make_error("/certificate", problem[0], wording)
    return certificate


def load_certificate(der: bytes, issuer_form: str = DEFAULT_FORM) -> Certificate:
    return _extract_facts(x509.load_der_x509_certificate(der), issuer_form)


def _extract_facts(found: x509.Certificate, issuer_form: str) -> Certificate:
    return Certificate(
        der=found.public_bytes(Encoding.DER),
        subject=format_name(found.subject),
        issuer=format_name(found.issuer, issuer_form),
        serial=found.serial_number,
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        tin=_get_attribute(found.subject, NameOID.ORGANIZATION_IDENTIFIER),
        registration=_get_attribute(found.subject, NameOID.SERIAL_NUMBER),
        public_key=found.public_key(),
    )


def format_name(name: x509.Name, form: str = DEFAULT_FORM) -> str:
    """Format a name in one of ISSUER_FORMS, as `CN=Contoh CA, O=Contoh Sdn Bhd, C=MY`."""
    step, separator = ISSUER_FORMS[form]
    parts = (part.rfc4514_string() for part in name.rdns[::step])
    return ", ".join(part.replace("=", separator, 1) for part in parts)


def _get_attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    return next((str(each.value) for each in name.get_attributes_for_oid(oid)), "")


def check_validity(certificate: Certificate, at: datetime) -> dict[str, str] | None:
    """Return the error {code, path, message} if the certificate is not valid at an instant."""
    if at < certificate.not_before:
        wording = f"The signing certificate is not valid before {certificate.not_before:%Y-%m-%d}."
    elif at > certificate.not_after:
        wording = f"The signing certificate expired on {certificate.not_after:%Y-%m-%d}."
    else:
        return None
    return {"code": "DS304", "path": PATH, "message": wording}


def make_record(certificate: Certificate, now: datetime, company: Row) -> JsonObject:
    """Return a certificate in the shape of the API. `company` is the record of its owner."""
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "serial": str(certificate.serial),
        "not_before": certificate.not_before.isoformat(timespec="milliseconds"),
        "not_after": certificate.not_after.isoformat(timespec="milliseconds"),
        "days_left": (certificate.not_after - now).days,
        "warning": " ".join(find_warnings(certificate, now, company)) or None,
    }


def find_warnings(
    certificate: Certificate, now: datetime, company: Row | None = None
) -> Iterator[str]:
    """Yield warnings, as sentences, about the validity and the identity of a certificate.

    `company` is the record of its owner, or None for the certificate of an intermediary, which
    names another company. Portal: 11.1
    """
    if outside := check_validity(certificate, now):
        yield outside["message"]
    elif certificate.not_after - now < WARN_BEFORE:
        days = (certificate.not_after - now).days
        left = f"in {days} day{'' if days == 1 else 's'}" if days else "within a day"
        yield f"The signing certificate expires on {certificate.not_after:%Y-%m-%d}, {left}."
    for member, title, column, fact, absent, different in IDENTITIES:
        found = normalize_tin(getattr(certificate, member))
        if not found:
            yield f"The signing certificate has no {title}; the portal rejects it with {absent}."
        elif company is not None and found != normalize_tin(company[column]):
            yield (
                f"The {title} of the signing certificate is {found}, not the company's {fact}: "
                "the portal accepts that from an intermediary only, "
                f"and otherwise rejects it with {different}."
            )


def is_self_signed(certificate: Certificate) -> bool:
    """Return whether no authority has issued a certificate; the portal rejects it with DS329."""
    found = x509.load_der_x509_certificate(certificate.der)
    return found.issuer == found.subject
