"""Certificates to sign documents with: read, named as a signature names them, and judged. Pure functions. Portal: 11.1"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from service.documents.signing.private_key import Unusable, misfit, read_key
from service.documents.ubl.parties import identifier, own_tin
from service.errors import violation

WARN_BEFORE = timedelta(days=30)
PATH = "/company/signing-certificate"
LONGEST_SERIAL = 160  # bits, as RFC 5280 has it

#: How the issuer's name is written, which the portal compares as text: in which order, and what
#: stands between a name
#: and its value. A certificate that it refuses with DS326 may pass in another form. Portal: 11.3,
#: 11.5
ISSUER_FORMS = {
    "rfc2253": (reversed, "="),
    "encoded": (iter, "="),
    "rfc2253_blanks": (reversed, " = "),
}
DEFAULT_FORM = "rfc2253"

#: member of the subject -> (what it has to be, the portal's code where it is absent, and where it
#: is another's).
IDENTITIES = {
    "tin": ("organisation identifier (2.5.4.97)", "TIN", "DS307", "DS311"),
    "registration": (
        "serial number of the subject (2.5.4.5)",
        "registration number",
        "DS306",
        "DS312",
    ),
}


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as a signature names it; `tin` and `registration` are empty where the subject has none."""

    der: bytes
    subject: str
    issuer: str
    serial: int
    not_before: datetime
    not_after: datetime
    tin: str
    registration: str
    public_key: object


@dataclass(frozen=True, slots=True, repr=False)
class Signer:
    """A certificate with its private key. Whatever else has `certificate` and `sign` can stand for one."""

    certificate: Certificate
    key: rsa.RSAPrivateKey

    def sign(self, content):
        """RSA PKCS#1 v1.5 over the SHA-256 of the content, bytes. Portal: 11.2"""
        return self.key.sign(content, padding.PKCS1v15(), hashes.SHA256())


def read_pair(certificate_pem, key_pem, password=None, *, issuer_form=DEFAULT_FORM, now=None):
    """The Signer of two PEM texts. Raises Unusable with all that is wrong; one that has expired `now`, if given, is."""
    certificate, faults = _tried(read_certificate, certificate_pem, issuer_form)
    key, more = _tried(read_key, key_pem, password)
    faults += more
    if certificate and now and certificate.not_after < now:
        faults.append(
            violation(
                "/certificate", "expired", f"certificate expired on {_day(certificate.not_after)}."
            )
        )
    if not faults and key.public_key() != certificate.public_key:
        faults.append(violation("/key", "match", "key is not the private key of the certificate."))
    if faults:
        raise Unusable(faults)
    return Signer(certificate, key)


def _tried(read, *arguments):
    """(what was read, no faults), or (None, what is wrong)."""
    try:
        return read(*arguments), []
    except Unusable as why:
        return None, list(why.faults)


def read_certificate(pem, issuer_form=DEFAULT_FORM):
    """The first certificate of a PEM text. Raises Unusable."""
    try:
        certificate = _named(x509.load_pem_x509_certificate(pem.encode()), issuer_form)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise Unusable(
            [
                violation(
                    "/certificate", "format", "certificate must be an X.509 certificate in PEM."
                )
            ]
        ) from None
    if not 0 < certificate.serial < 2**LONGEST_SERIAL:
        wording = f"The serial number of certificate must be a positive number of at most {LONGEST_SERIAL} bits."
        raise Unusable([violation("/certificate", "serial", wording)])
    if why := misfit(certificate.public_key):
        raise Unusable([violation("/certificate", why[0], f"The key of certificate {why[1]}")])
    return certificate


def of_der(der, issuer_form=DEFAULT_FORM):
    """The certificate of the bytes that one had as `der`."""
    return _named(x509.load_der_x509_certificate(der), issuer_form)


def _named(found, issuer_form):
    return Certificate(
        der=found.public_bytes(Encoding.DER),
        subject=name_text(found.subject),
        issuer=name_text(found.issuer, issuer_form),
        serial=found.serial_number,
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        tin=_member(found.subject, NameOID.ORGANIZATION_IDENTIFIER),
        registration=_member(found.subject, NameOID.SERIAL_NUMBER),
        public_key=found.public_key(),
    )


def name_text(name, form=DEFAULT_FORM):
    """A certificate's name as text, in one of ISSUER_FORMS: `CN=Contoh CA, O=Contoh Sdn Bhd, C=MY`."""
    order, between = ISSUER_FORMS[form]
    return ", ".join(part.rfc4514_string().replace("=", between, 1) for part in order(name.rdns))


def _member(name, oid):
    return next((str(each.value) for each in name.get_attributes_for_oid(oid)), "")


def outside_validity(certificate, at):
    """Why a document cannot be signed at an instant, as {code, path, message}, or None."""
    if at < certificate.not_before:
        wording = f"The signing certificate is not valid before {_day(certificate.not_before)}."
    elif at > certificate.not_after:
        wording = f"The signing certificate expired on {_day(certificate.not_after)}."
    else:
        return None
    return {"code": "DS304", "path": PATH, "message": wording}


def days_left(certificate, now):
    """Whole days until it expires, less than 0 afterwards."""
    return (certificate.not_after - now).days


def record(certificate, now, company):
    """What the API tells of a certificate. `company` is the record of the one that signs with it."""
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "serial": str(certificate.serial),
        "not_before": certificate.not_before.isoformat(timespec="milliseconds"),
        "not_after": certificate.not_after.isoformat(timespec="milliseconds"),
        "days_left": days_left(certificate, now),
        "warning": " ".join(warnings(certificate, now, company)) or None,
    }


def warnings(certificate, now, company=None):
    """What a person should know of a certificate, as sentences: that it is about to expire, and whose it is.

    `company` is the record of the one whose own it is; that of an intermediary names another. Portal: 11.1
    """
    return [
        *_about_time(certificate, now),
        *(_about_identity(certificate, company) if company else ()),
    ]


def _about_time(certificate, now):
    if outside := outside_validity(certificate, now):
        yield outside["message"]
    elif certificate.not_after - now < WARN_BEFORE:
        days = days_left(certificate, now)
        left = f"in {days} day{'' if days == 1 else 's'}" if days else "within a day"
        yield f"The signing certificate expires on {_day(certificate.not_after)}, {left}."


def _about_identity(certificate, company):
    own = {
        "tin": own_tin({"tin": company["tin_code"]}),
        "registration": identifier(company["registration_number"]),
    }
    for member, (title, meant, absent, another) in IDENTITIES.items():
        found = identifier(getattr(certificate, member)).upper()
        if not found:
            yield f"The signing certificate has no {title}; the portal refuses it with {absent}."
        elif found != own[member].upper():
            yield (
                f"The {title} of the signing certificate is {found}, not the company's {meant}: the portal takes "
                f"that from its intermediary only, and else refuses it with {another}."
            )


def _day(at):
    return f"{at:%Y-%m-%d}"
