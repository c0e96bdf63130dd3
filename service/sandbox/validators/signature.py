"""Step 8: the signature of a document of version 1.1 or 1.3. Portal: 11, 14.10

Every breach has its code; a rule that lacks what another rule misses is silent.
"""

import re
from base64 import b64encode
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ..certificates import (
    decoded,
    is_issued_by,
    is_named,
    read_certificate,
    subject_value,
    verifying_key,
)
from ..database import sql
from ..document import TIN_ONLY, entries, value, well_formed_tin
from ..minified import minify, parts, without
from . import Finding, wildcard

SIGNATURE = "UBLExtensions.UBLExtension.ExtensionContent.UBLDocumentSignatures.SignatureInformation.Signature"
PROPERTIES = "Object.QualifyingProperties"
SIGNED = f"{PROPERTIES}.SignedProperties.SignedSignatureProperties"
CERT = f"{SIGNED}.SigningCertificate.Cert"
X509 = "KeyInfo.X509Data"

URN = "urn:oasis:names:specification:ubl:dsig:enveloped:xades"
DIGEST = "http://www.w3.org/2001/04/xmlenc#sha256"
METHOD = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SIGNED_TYPE = "#SignedProperties"  # the end of the type of the reference to them
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
REGISTRATION = r"[A-Za-z0-9-]{1,20}"
# Decimal is documented; clients with a history send hexadecimal
SERIAL = r"[0-9]+|0[xX][0-9A-Fa-f]+"

#: code -> what it says
MESSAGES = {
    "DS300": "The qualifying properties of the signature cannot be parsed.",
    "DS301": "The document has no signature.",
    "DS302": "The document has more than one signature.",
    "DS303": "The signing time is missing.",
    "DS304": "The signing time is outside the validity of the certificate.",
    "DS305": "The certificate is invalid or unreadable.",
    "DS306": "The certificate has no serialNumber in its subject.",
    "DS307": "The certificate has no organization identifier in its subject.",
    "DS309": "A personal certificate is not for documents sent through the API.",
    "DS311": "The TIN of the submitter differs from the certificate.",
    "DS312": "The registration number of the submitter differs from the certificate.",
    "DS313": "The digest algorithm of the certificate is not SHA-256.",
    "DS314": "The digest algorithm of the document is not SHA-256.",
    "DS315": "The digest algorithm of the signed properties is not SHA-256.",
    "DS316": "The signature method is not RSA-SHA256.",
    "DS317": "The digest of the certificate is missing.",
    "DS318": "The digest of the certificate differs.",
    "DS319": "The digest of the signed properties is missing.",
    "DS320": "The digest of the signed properties differs.",
    "DS321": "The digest of the document is missing.",
    "DS322": "The digest of the document differs.",
    "DS323": "Signature.SignatureMethod is not the URN of UBL XAdES.",
    "DS324": "The issuer name of the certificate is missing.",
    "DS325": "The serial number of the certificate is missing.",
    "DS326": "The issuer name differs from the certificate.",
    "DS327": "The serial number of the certificate cannot be parsed.",
    "DS328": "The serial number differs from the certificate.",
    "DS329": "The certificate is not from a trusted authority.",
    "DS330": "The TIN of the certificate is not known.",
    "DS331": "The signed information cannot be parsed.",
    "DS332": "The signature value is missing.",
    "DS333": "The signature value does not verify.",
    "DS334": "The certificate cannot be used to verify a signature.",
    "DS335": "The signature value is not base64.",
    "DS336": "The signing time is not in the form YYYY-MM-DDTHH:MM:SSZ.",
    "DS337": "The serialNumber in the subject of the certificate cannot be parsed.",
    "DS338": "The organization identifier of the certificate cannot be parsed.",
}


def check(document, row, sandbox):
    """Findings of the one signature; without one, or with a broken one, that alone. Portal: 14.10"""
    found = list(entries(document.invoice, SIGNATURE))
    if not found:
        yield finding("DS301")
    elif len(found) > 1 or len(document.invoice["Signature"]) > 1:
        yield finding("DS302")
    elif not isinstance(found[0], dict) or len(list(entries(found[0], SIGNED))) != 1:
        yield finding("DS300", PROPERTIES)
    elif len(list(entries(found[0], "SignedInfo"))) != 1:
        yield finding("DS331", "SignedInfo")
    else:
        signature = Signature(found[0], document)
        for rule in RULES:
            yield from (finding(code, path) for code, path in rule(signature, row, sandbox))


class Signature:
    """The signature of a document beside what it was made of."""

    def __init__(self, node, document):
        self.node = node
        self.document = document

    def text(self, path, attribute="_"):
        """Blank where it is missing or no text."""
        found = value(self.node, path, attribute)
        return found.strip() if isinstance(found, str) else ""

    @cached_property
    def certificate(self):
        return read_certificate(self.text(f"{X509}.X509Certificate"))

    @cached_property
    def signed_at(self):
        """An instant, or None when the text has another form."""
        text = self.text(f"{SIGNED}.SigningTime")
        try:
            found = (
                datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
                if re.fullmatch(TIME, text, re.ASCII)
                else None
            )
        except ValueError:
            return None
        return found and found.replace(tzinfo=UTC)

    @cached_property
    def minified(self):
        return minify(self.document.raw.decode())

    @cached_property
    def content(self):
        """The bytes that were signed. Portal: 11.3, step 2"""
        return without(self.minified, {"UBLExtensions", "Signature"}).encode()

    @property
    def properties(self):
        """The bytes of the inner object of the qualifying properties. Portal: 11.3, step 8"""
        return parts(self.minified, f"Invoice.{SIGNATURE}.{PROPERTIES}")[0].encode()

    def reference(self, signed_properties):
        """The reference to the signed properties, or the one to the document. Portal: 11.5"""
        for each in entries(self.node, "SignedInfo.Reference"):
            if isinstance(each, dict) and is_of_properties(each) == signed_properties:
                return each
        return {}


def is_of_properties(reference):
    """By its type, or by its URI, which for the document is empty."""
    return str(reference.get("Type", "")).endswith(SIGNED_TYPE) or str(
        reference.get("URI", "")
    ).startswith("#")


def signing_time(signature, *_):
    path, certificate = f"{SIGNED}.SigningTime", signature.certificate
    if not signature.text(path):
        yield "DS303", path
    elif signature.signed_at is None:
        yield "DS336", path
    elif (
        certificate
        and not certificate.not_valid_before_utc
        <= signature.signed_at
        <= certificate.not_valid_after_utc
    ):
        yield "DS304", path


def certificate(signature, *_):
    """The certificate by itself: readable, of an organisation, with the numbers in its subject. Portal: 11.1"""
    path, found = f"{X509}.X509Certificate", signature.certificate
    if found is None:
        yield "DS305", path
        return
    if subject_value(found, NameOID.ORGANIZATION_NAME) is None:
        yield "DS309", path
    for oid, is_parsed, missing, broken in SUBJECT:
        text = subject_value(found, oid)
        if text is None:
            yield missing, path
        elif not is_parsed(text):
            yield broken, path


#: part of the subject -> whether its text can be read, code when it is missing, code when it cannot
#: be read
SUBJECT = (
    (NameOID.SERIAL_NUMBER, lambda text: re.fullmatch(REGISTRATION, text), "DS306", "DS337"),
    (NameOID.ORGANIZATION_IDENTIFIER, well_formed_tin, "DS307", "DS338"),
)


def owner(signature, row, sandbox):
    """The certificate is the issuer's, or that of the intermediary who sent the document. Portal: 11.1"""
    path, found = f"{X509}.X509Certificate", signature.certificate
    tin = found and subject_value(found, NameOID.ORGANIZATION_IDENTIFIER)
    number = found and subject_value(found, NameOID.SERIAL_NUMBER)
    if tin and well_formed_tin(tin):
        if sandbox.controls.strict_register and sql.taxpayer_get(sandbox.db, tin=tin) is None:
            yield "DS330", path
        if tin not in (row["taxpayer"], row["intermediary_tin"]):
            yield "DS311", path
    if number and re.fullmatch(REGISTRATION, number):
        whose = tin if tin and tin == row["intermediary_tin"] else row["taxpayer"]
        known = registrations(signature.document, whose, row, sandbox)
        if known and plain(number) not in known:
            yield "DS312", path


def registrations(document, tin, row, sandbox):
    """The numbers a taxpayer goes by: those in the register, and of the issuer the one in the document."""
    known = {each["value"] for each in sql.identity_list(sandbox.db, tin=tin)}
    own = {document.issuer.identity[1]} if tin == row["taxpayer"] else set()
    return {plain(number) for number in (known | own) - {"", "NA", TIN_ONLY}}


def plain(number):
    return number.replace("-", "").upper()


def algorithms(signature, *_):
    path = f"{CERT}.CertDigest.DigestMethod"
    if signature.text(path, "Algorithm") != DIGEST:
        yield "DS313", path
    for of_properties, code in ((False, "DS314"), (True, "DS315")):
        reference = signature.reference(of_properties)
        if reference and value(reference, "DigestMethod", "Algorithm") != DIGEST:
            yield code, "SignedInfo.Reference.DigestMethod"
    if signature.text("SignedInfo.SignatureMethod", "Algorithm") != METHOD:
        yield "DS316", "SignedInfo.SignatureMethod"


def digests(signature, *_):
    path = f"{CERT}.CertDigest.DigestValue"
    der = signature.certificate and signature.certificate.public_bytes(Encoding.DER)
    yield from digest(signature.text(path), der, "DS317", "DS318", path)
    for of_properties, content, missing, differs in (
        (True, signature.properties, "DS319", "DS320"),
        (False, signature.content, "DS321", "DS322"),
    ):
        text = value(signature.reference(of_properties), "DigestValue")
        yield from digest(text, content, missing, differs, "SignedInfo.Reference.DigestValue")


def digest(text, content, missing, differs, path):
    if not text:
        yield missing, path
    elif content is not None and text != b64encode(sha256(content).digest()).decode():
        yield differs, path


def method(signature, *_):
    if signature.document.text("Signature.SignatureMethod") != URN:
        yield "DS323", None


def issuer(signature, *_):
    """Who issued the certificate, in the signed properties, and where it stands in the key information too."""
    for prefix, required in ((f"{CERT}.IssuerSerial", True), (f"{X509}.X509IssuerSerial", False)):
        path = f"{prefix}.X509IssuerName"
        name = signature.text(path)
        if required and not name:
            yield "DS324", path
        elif name and signature.certificate and not is_named(name, signature.certificate.issuer):
            yield "DS326", path
        yield from serial(signature, f"{prefix}.X509SerialNumber", required)


def serial(signature, path, required):
    text = signature.text(path)
    if not text:
        if required:
            yield "DS325", path
    elif not re.fullmatch(SERIAL, text):
        yield "DS327", path
    elif signature.certificate and number_of(text) != signature.certificate.serial_number:
        yield "DS328", path


def number_of(text):
    """Serial numbers have at most 20 bytes; what is longer is none of them."""
    return int(text, 16 if text[:2] in ("0x", "0X") else 10) if len(text) <= 60 else None


def trust(signature, row, sandbox):
    authorities = sandbox.settings.authorities
    if not (authorities and signature.certificate):
        return
    if not any(is_issued_by(signature.certificate, authority) for authority in authorities):
        yield "DS329", f"{X509}.X509Certificate"


def signature_value(signature, *_):
    text = signature.text("SignatureValue")
    key = signature.certificate and verifying_key(signature.certificate)
    if signature.certificate and key is None:
        yield "DS334", f"{X509}.X509Certificate"
    if not text:
        yield "DS332", "SignatureValue"
        return
    try:
        given = decoded(text)
    except ValueError:
        yield "DS335", "SignatureValue"
        return
    if key and not verifies(key, given, signature.content):
        yield "DS333", "SignatureValue"


def verifies(key, given, content):
    try:
        key.verify(given, content, PKCS1v15(), SHA256())
    except InvalidSignature:
        return False
    return True


RULES = (
    signing_time,
    certificate,
    owner,
    algorithms,
    digests,
    method,
    issuer,
    trust,
    signature_value,
)


def finding(code, path=None):
    """`path` is below the signature; without it the finding is about the document's own `Signature`."""
    where = f"{SIGNATURE}.{path}" if path else "Signature"
    return Finding(
        code, MESSAGES[code], where.rpartition(".")[2], wildcard(where), "Tandatangan tidak sah."
    )
