"""Step 8: the signature of a document of version 1.1 or 1.3. Portal: 11, 14.10

Every violation has its own code. A rule without its input yields nothing, because another rule
reports the missing input.
"""

import json
import re
from base64 import b64encode
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate, ObjectIdentifier
from cryptography.x509.oid import NameOID

from ..answers import Body, encode
from ..certificates import decode_base64, is_issued_by, is_named, read_certificate, verifying_key
from ..controls import Sandbox
from ..database import Row
from ..document import TIN_ONLY, UblDocument, entries, text_at, value, well_formed_tin
from . import Finding, finding_at, read_exactly

SIGNATURE = (
    "UBLExtensions.UBLExtension.ExtensionContent.UBLDocumentSignatures"
    ".SignatureInformation.Signature"
)
PROPERTIES = "Object.QualifyingProperties"
SIGNED = f"{PROPERTIES}.SignedProperties.SignedSignatureProperties"
CERT = f"{SIGNED}.SigningCertificate.Cert"
X509 = "KeyInfo.X509Data"
CERTIFICATE = f"{X509}.X509Certificate"

URN = "urn:oasis:names:specification:ubl:dsig:enveloped:xades"
DIGEST = "http://www.w3.org/2001/04/xmlenc#sha256"
METHOD = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SIGNED_TYPE = "#SignedProperties"  # end of the type of the reference to the signed properties
REGISTRATION = r"[A-Za-z0-9-]{1,20}"
# The protocol documents decimal numbers; some existing clients send hexadecimal ones.
SERIAL = r"[0-9]+|0[xX][0-9A-Fa-f]+"
MOST_SERIAL_DIGITS = 60  # more than a serial number can have, so that a longer one differs

ESCAPE = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u\w{4}|\\.", re.ASCII)
#: An object whose values are text.
Members = dict[str, msgspec.Raw]

#: (code, path below the signature or None).
Violation = tuple[str, str | None]

#: Code -> message.
MESSAGES = json.loads(Path(__file__).with_name("signature.json").read_text("utf-8"))


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield the findings of the only signature, or that it is missing or broken. Portal: 14.10"""
    found = list(entries(document.invoice, SIGNATURE))
    if not found:
        yield make_finding("DS301")
    elif len(found) > 1 or len(document.invoice["Signature"]) > 1:
        yield make_finding("DS302")
    elif not isinstance(found[0], dict) or len(list(entries(found[0], SIGNED))) != 1:
        yield make_finding("DS300", PROPERTIES)
    elif len(list(entries(found[0], "SignedInfo"))) != 1:
        yield make_finding("DS331", "SignedInfo")
    else:
        signature = Signature(found[0], document, row, sandbox)
        for rule in RULES:
            yield from (make_finding(code, path) for code, path in rule(signature))


@dataclass
class Signature:
    """The signature of a document, and the content that it signs."""

    node: object
    document: UblDocument
    row: Row
    sandbox: Sandbox

    def text(self, path: str, attribute: str = "_") -> str:
        """Return the text at a path, or an empty string."""
        return text_at(self.node, path, attribute).strip()

    @cached_property
    def certificate(self) -> Certificate | None:
        return read_certificate(self.text(CERTIFICATE))

    def subject(self, oid: ObjectIdentifier) -> str | None:
        """Return an attribute of the subject of the certificate, or None."""
        found = self.certificate and self.certificate.subject.get_attributes_for_oid(oid)
        return str(found[0].value) if found else None

    @cached_property
    def signed_at(self) -> datetime | None:
        """Return the signing time, or None if it has another form."""
        return read_exactly(self.text(f"{SIGNED}.SigningTime"), "%Y-%m-%dT%H:%M:%SZ")

    @cached_property
    def minified(self) -> str:
        return minify(self.document.raw.decode())

    @cached_property
    def content(self) -> bytes:
        """Return the signed bytes of the document. Portal: 11.3, step 2"""
        return without(self.minified, {"UBLExtensions", "Signature"}).encode()

    @property
    def properties(self) -> bytes:
        """Return the bytes of the object inside the qualifying properties. Portal: 11.3, step 8"""
        return bytes(next(entry_texts(self.minified, f"Invoice.{SIGNATURE}.{PROPERTIES}")))

    def reference(self, to_properties: bool) -> Body:
        """Return the reference to the signed properties, or to the document. Portal: 11.5"""
        for each in entries(self.node, "SignedInfo.Reference"):
            if isinstance(each, dict):
                kind, uri = (str(each.get(name, "")) for name in ("Type", "URI"))
                # The URI of the reference to the document is empty.
                if (kind.endswith(SIGNED_TYPE) or uri.startswith("#")) == to_properties:
                    return each
        return {}


def check_time(signature: Signature) -> Iterator[Violation]:
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


def is_registration(text: str) -> bool:
    return re.fullmatch(REGISTRATION, text) is not None


#: Required attribute of the subject, its form, codes if it is missing or has another form.
SUBJECT = (
    (NameOID.SERIAL_NUMBER, is_registration, "DS306", "DS337"),
    (NameOID.ORGANIZATION_IDENTIFIER, well_formed_tin, "DS307", "DS338"),
)


def check_certificate(signature: Signature) -> Iterator[Violation]:
    """Check that the certificate is readable, trusted, and an organisation's with numbers.

    Portal: 11.1
    """
    certificate = signature.certificate
    if certificate is None:
        yield "DS305", CERTIFICATE
        return
    if signature.subject(NameOID.ORGANIZATION_NAME) is None:
        yield "DS309", CERTIFICATE
    for oid, is_valid, missing, invalid in SUBJECT:
        text = signature.subject(oid)
        if text is None:
            yield missing, CERTIFICATE
        elif not is_valid(text):
            yield invalid, CERTIFICATE
    trusted = signature.sandbox.settings.trusted_ca
    if trusted and not any(is_issued_by(certificate, each) for each in trusted):
        yield "DS329", CERTIFICATE


def check_owner(signature: Signature) -> Iterator[Violation]:
    """Check that the certificate belongs to the issuer or the sending intermediary. Portal: 11.1"""
    row, sandbox = signature.row, signature.sandbox
    tin = signature.subject(NameOID.ORGANIZATION_IDENTIFIER)
    number = signature.subject(NameOID.SERIAL_NUMBER)
    if tin and well_formed_tin(tin):
        if sandbox.controls.strict_register and tin not in sandbox.state.taxpayers:
            yield "DS330", CERTIFICATE
        if tin not in (row["taxpayer"], row["intermediary_tin"]):
            yield "DS311", CERTIFICATE
    if number and is_registration(number):
        owner = tin if tin and tin == row["intermediary_tin"] else row["taxpayer"]
        known = registrations(signature, owner)
        if known and normalize(number) not in known:
            yield "DS312", CERTIFICATE


def registrations(signature: Signature, tin: str) -> set[str]:
    """Return the registered numbers of a taxpayer, and for the issuer also the document's."""
    known = {number for _, number in signature.sandbox.state.identities(tin)}
    if tin == signature.row["taxpayer"]:
        known.add(signature.document.issuer.identity[1])
    return {normalize(number) for number in known - {"", "NA", TIN_ONLY}}


def normalize(number: str) -> str:
    """Return a registration number without hyphens, in upper case."""
    return number.replace("-", "").upper()


def check_algorithms(signature: Signature) -> Iterator[Violation]:
    path = f"{CERT}.CertDigest.DigestMethod"
    if signature.text(path, "Algorithm") != DIGEST:
        yield "DS313", path
    for to_properties, code in ((False, "DS314"), (True, "DS315")):
        reference = signature.reference(to_properties)
        if reference and value(reference, "DigestMethod", "Algorithm") != DIGEST:
            yield code, "SignedInfo.Reference.DigestMethod"
    if signature.text("SignedInfo.SignatureMethod", "Algorithm") != METHOD:
        yield "DS316", "SignedInfo.SignatureMethod"
    if signature.document.text("Signature.SignatureMethod") != URN:
        yield "DS323", None


def check_digests(signature: Signature) -> Iterator[Violation]:
    path = f"{CERT}.CertDigest.DigestValue"
    der = signature.certificate and signature.certificate.public_bytes(Encoding.DER)
    where = "SignedInfo.Reference.DigestValue"
    properties, document = (
        value(signature.reference(to_properties), "DigestValue") for to_properties in (True, False)
    )
    for text, content, missing, differs, place in (
        (signature.text(path), der, "DS317", "DS318", path),
        (properties, signature.properties, "DS319", "DS320", where),
        (document, signature.content, "DS321", "DS322", where),
    ):
        if not text:
            yield missing, place
        elif content is not None and text != b64encode(sha256(content).digest()).decode():
            yield differs, place


def check_issuer(signature: Signature) -> Iterator[Violation]:
    """Check issuer name and serial number in the signed properties and in the key information.

    They are optional in the key information.
    """
    for prefix, required in ((f"{CERT}.IssuerSerial", True), (f"{X509}.X509IssuerSerial", False)):
        path = f"{prefix}.X509IssuerName"
        name = signature.text(path)
        if required and not name:
            yield "DS324", path
        elif name and signature.certificate and not is_named(name, signature.certificate.issuer):
            yield "DS326", path
        yield from check_serial(signature, f"{prefix}.X509SerialNumber", required)


def check_serial(signature: Signature, path: str, required: bool) -> Iterator[Violation]:
    text = signature.text(path)
    if not text:
        if required:
            yield "DS325", path
    elif not re.fullmatch(SERIAL, text):
        yield "DS327", path
    elif signature.certificate:
        base = 16 if text[:2] in ("0x", "0X") else 10
        if int(text[:MOST_SERIAL_DIGITS], base) != signature.certificate.serial_number:
            yield "DS328", path


def check_value(signature: Signature) -> Iterator[Violation]:
    text = signature.text("SignatureValue")
    key = signature.certificate and verifying_key(signature.certificate)
    if signature.certificate and key is None:
        yield "DS334", CERTIFICATE
    if not text:
        yield "DS332", "SignatureValue"
        return
    try:
        given = decode_base64(text)
        if key:
            key.verify(given, signature.content, PKCS1v15(), SHA256())
    except ValueError:
        yield "DS335", "SignatureValue"
    except InvalidSignature:
        yield "DS333", "SignatureValue"


RULES = (
    check_time,
    check_certificate,
    check_owner,
    check_algorithms,
    check_digests,
    check_issuer,
    check_value,
)


# Extraction of parts of a document's JSON text. Portal: 11.2
#
# The signature covers text, so numbers and the order of members stay as sent. If a name is
# repeated, the last member counts, as in JSON parsers.


def minify(text: str) -> str:
    """Return JSON text without white space outside strings and with non-ASCII unescaped."""
    return ESCAPE.sub(unescape, msgspec.json.format(text, indent=-1))


def unescape(escape: re.Match[str]) -> str:
    """Return the character of an escape if it is not ASCII, else the escape."""
    character = json.loads(f'"{escape[0]}"')
    return escape[0] if character.isascii() else character


def without(text: str, names: Container[str]) -> str:
    """Return the minified text of a document without the named members of its invoice."""
    root = msgspec.json.decode(text, type=Members)
    (invoice,) = msgspec.json.decode(root["Invoice"], type=list[Members])
    kept = {name: value for name, value in invoice.items() if name not in names}
    return encode({**root, "Invoice": [kept]}).decode()


def entry_texts(text: str | msgspec.Raw, path: str) -> Iterator[msgspec.Raw]:
    """Yield the text of every array entry at the path, as `entries` finds them, below an object."""
    name, _, rest = path.partition(".")
    try:
        members = msgspec.json.decode(text, type=Members)
        found = msgspec.json.decode(members.get(name, "[]"), type=list[msgspec.Raw])
    except msgspec.ValidationError:  # an entry of another shape
        return
    for entry in found:
        if rest:
            yield from entry_texts(entry, rest)
        else:
            yield entry


def make_finding(code: str, path: str | None = None) -> Finding:
    """Return a finding at a path below the signature, or at the document's own `Signature`."""
    where = f"{SIGNATURE}.{path}" if path else "Signature"
    return finding_at(where, code, MESSAGES[code])
