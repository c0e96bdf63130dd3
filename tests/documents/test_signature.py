"""The signature of version 1.1: a published vector, round trips, and changes after signing."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import simplejson
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from service.documents.signing import certificate, signature
from service.documents.signing.certificate import Certificate, Signer
from service.documents.ubl import document
from tests.documents.test_document import GOLDEN, at, build_document, parse_exactly
from tests.harness.certificates import authority, issued, key_text, rsa_key
from tests.harness.paths import DOCUMENTS

VECTOR = json.loads((DOCUMENTS / "signature_vector.json").read_text())
SIGNED_EXAMPLE = (DOCUMENTS / "signed_example.json").read_bytes().rstrip()
SIGNED_AT = datetime(2026, 9, 14, 3, 25, 40, tzinfo=UTC)
BLOCK = (
    "UBLExtensions.UBLExtension.ExtensionContent.UBLDocumentSignatures.SignatureInformation."
    "Signature"
)
CERT = (
    "Object.QualifyingProperties.SignedProperties.SignedSignatureProperties.SigningCertificate.Cert"
)


def parse_as_written(raw: bytes) -> dict[str, Any]:
    """Parse a document so that numbers keep their notation when it is minified again."""
    return simplejson.loads(raw, parse_float=simplejson.RawJSON, parse_int=simplejson.RawJSON)


def minify(value: Any) -> bytes:
    return simplejson.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def split_signature(signed: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Split a signed document into the document without signature and the signature block."""
    (invoice,) = signed["Invoice"]
    kept = {
        name: member
        for name, member in invoice.items()
        if name not in ("UBLExtensions", "Signature")
    }
    return {**signed, "Invoice": [kept]}, at(invoice, BLOCK)


def verify(bare: dict[str, Any], block: Any) -> None:
    """Verify the signature block of a document as the portal does. Portal: 11.3"""
    content, der = minify(bare), base64.b64decode(at(block, "KeyInfo.X509Data.X509Certificate"))
    properties, whole = [at(each, "DigestValue") for each in block["SignedInfo"][0]["Reference"]]
    assert at(block, f"{CERT}.CertDigest.DigestValue") == digest(der)
    assert properties == digest(minify(at(block, "Object.QualifyingProperties")))
    key = x509.load_der_x509_certificate(der).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    key.verify(
        base64.b64decode(at(block, "SignatureValue")), content, padding.PKCS1v15(), hashes.SHA256()
    )
    assert whole == digest(content)


# The published vector


@pytest.fixture
def unsigned() -> dict[str, Any]:
    """The document of the vector: the portal's example as version 1.1."""
    example = parse_exactly((DOCUMENTS / "portal_example.json").read_bytes())
    example["Invoice"][0]["InvoiceTypeCode"][0]["listVersionID"] = "1.1"
    return example


@pytest.fixture
def vector_certificate() -> Certificate:
    _, block = split_signature(json.loads(SIGNED_EXAMPLE))
    return certificate.load_certificate(
        base64.b64decode(at(block, "KeyInfo.X509Data.X509Certificate"))
    )


def test_the_vector_document_has_its_published_digest(unsigned: dict[str, Any]) -> None:
    content = document.encode(unsigned)
    assert len(content) == VECTOR["document_length"]
    assert signature.compute_digest(content) == VECTOR["document_digest"]


def test_the_vector_certificate_has_its_published_names(vector_certificate: Certificate) -> None:
    assert signature.compute_digest(vector_certificate.der) == VECTOR["certificate_digest"]
    assert (
        vector_certificate.issuer,
        vector_certificate.subject,
        str(vector_certificate.serial),
    ) == tuple(VECTOR[n] for n in ("issuer", "subject", "serial"))
    assert vector_certificate.tin == "C4821093650"
    assert vector_certificate.registration == "201801024680"
    assert vector_certificate.not_before.isoformat() == "2026-01-01T00:00:00+00:00"
    assert vector_certificate.not_after.year == 2036


def test_the_vector_properties_are_the_published_bytes(vector_certificate: Certificate) -> None:
    content = document.encode(signature.build_qualifying_properties(vector_certificate, SIGNED_AT))
    assert content.decode() == VECTOR["properties"] and len(content) == 519
    assert signature.compute_digest(content) == VECTOR["properties_digest"]


def test_the_signed_vector_has_the_published_bytes(
    unsigned: dict[str, Any], vector_certificate: Certificate
) -> None:
    _, block = split_signature(json.loads(SIGNED_EXAMPLE))
    value = base64.b64decode(at(block, "SignatureValue"))
    raw = signature.insert_signature(
        document.encode(unsigned), vector_certificate, value, SIGNED_AT
    )
    assert raw == SIGNED_EXAMPLE and len(raw) == VECTOR["signed_length"]
    assert hashlib.sha256(raw).hexdigest() == VECTOR["signed_sha256"]
    verify(*split_signature(parse_as_written(raw)))


# Round trips


@pytest.fixture(scope="module")
def signer() -> Signer:
    return certificate.read_pair(*issued().pair.values())


@pytest.mark.parametrize("name", GOLDEN)
def test_every_document_type_has_a_valid_signature(signer: Signer, name: str) -> None:
    whole = build_document(GOLDEN[name], version="1.1")
    raw = signature.sign(whole, signer, SIGNED_AT)
    verify(*split_signature(parse_as_written(raw)))
    assert document.encode(parse_exactly(raw)) == raw == minify(parse_as_written(raw))
    assert list(parse_exactly(raw)["Invoice"][0])[-2:] == ["UBLExtensions", "Signature"]
    assert document.encode(signature.remove_signature(parse_exactly(raw))) == document.encode(whole)


def test_signing_keeps_the_notation_of_texts_and_numbers(signer: Signer) -> None:
    source = deepcopy(GOLDEN["usd_invoice"])
    source["lineItems"][0]["description"] = 'Kopi "tarik" \\ 拿铁 é \U0001f9cb </script>'
    verify(
        *split_signature(
            parse_as_written(
                signature.sign(build_document(source, version="1.1"), signer, SIGNED_AT)
            )
        )
    )


def test_signing_again_replaces_the_signature(signer: Signer) -> None:
    whole = build_document(GOLDEN["invoice"], version="1.1")
    first = signature.sign(whole, signer, SIGNED_AT)
    assert signature.sign(parse_exactly(first), signer, SIGNED_AT) == first


@pytest.mark.parametrize("wrong", [{"Invoice": [{}, {}]}, {"Invoice": [{}], "_D": "x"}])
def test_a_document_of_another_structure_is_not_signed(
    signer: Signer, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        signature.sign(wrong, signer, SIGNED_AT)


def test_the_signing_time_is_utc_in_whole_seconds(signer: Signer) -> None:
    local = SIGNED_AT.astimezone(timezone(timedelta(hours=8))) + timedelta(microseconds=999_999)
    signed = parse_exactly(
        signature.sign(build_document(GOLDEN["invoice"], version="1.1"), signer, local)
    )
    properties = "Object.QualifyingProperties.SignedProperties.SignedSignatureProperties"
    assert at(signed["Invoice"][0], f"{BLOCK}.{properties}.SigningTime") == "2026-09-14T03:25:40Z"


# Changes


def make_changes(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Make one change at a time in a container, at any depth, and undo it before the next one."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        kept = holder[key]
        for other in list_other_values(kept):
            holder[key] = other
            yield key, other
        holder[key] = kept
        if isinstance(kept, (dict, list)):
            yield from make_changes(kept)


def list_other_values(value: Any) -> Iterator[Any]:
    """Yield values that differ minimally from a value."""
    if isinstance(value, dict):
        for name in value:
            yield {member: value[member] for member in value if member != name}
            yield {f"{member}{'s' * (member == name)}": value[member] for member in value}
        yield {**value, "ID2": []}
        if len(value) > 1:
            yield dict(reversed(value.items()))
    elif isinstance(value, list):
        yield value[:-1]
        yield [*value, value[0]]
        yield value[0]
    elif isinstance(value, simplejson.RawJSON):
        number = value.encoded_json
        yield number
        yield simplejson.RawJSON(f"{number}0" if "." in number else f"{number}.0")
    elif isinstance(value, bool):
        yield not value
    else:
        cased = [value.swapcase()] if value.lower() != value.upper() else []
        yield from (f"{value} ", value[:-1], f"{value[:-1]}\u200b", *cased)


@pytest.mark.parametrize("name", ["credit_note", "usd_invoice"])
def test_any_change_after_signing_invalidates_the_signature(signer: Signer, name: str) -> None:
    signed = signature.sign(build_document(GOLDEN[name], version="1.1"), signer, SIGNED_AT)
    bare, block = split_signature(parse_as_written(signed))
    whole, before, made = {"document": bare}, minify(bare), 0
    for place, other in make_changes(whole):
        made += 1
        content = minify(whole["document"])
        assert digest(content) != digest(before), (place, other)
        if made % 7 == 0:  # a verification takes ten times as long as a digest
            with pytest.raises(InvalidSignature):
                verify(whole["document"], block)
    assert made > 1000 and minify(bare) == before
    verify(bare, block)


# Certificates


def test_a_distinguished_name_has_three_text_forms() -> None:
    name = x509.Name.from_rfc4514_string(r"CN=Contoh\, Issuing = CA,O=Contoh Amanah Sdn Bhd,C=MY")
    forms = {form: certificate.format_name(name, form) for form in certificate.ISSUER_FORMS}
    assert forms == {
        "rfc2253": r"CN=Contoh\, Issuing = CA, O=Contoh Amanah Sdn Bhd, C=MY",
        "encoded": r"C=MY, O=Contoh Amanah Sdn Bhd, CN=Contoh\, Issuing = CA",
        "rfc2253_blanks": r"CN = Contoh\, Issuing = CA, O = Contoh Amanah Sdn Bhd, C = MY",
    }


def test_signatures_use_the_issuer_form_of_their_certificate() -> None:
    signer = certificate.read_pair(*issued().pair.values(), issuer_form="encoded")
    _, block = split_signature(
        parse_as_written(
            signature.sign(build_document(GOLDEN["invoice"], version="1.1"), signer, SIGNED_AT)
        )
    )
    encoded = "C=MY, O=Contoh Amanah Sdn Bhd, CN=Contoh Test Issuing CA"
    assert at(block, f"{CERT}.IssuerSerial.X509IssuerName") == encoded
    assert at(block, "KeyInfo.X509Data.X509IssuerSerial.X509IssuerName") == encoded


def violations(**changes: Any) -> dict[str, str]:
    """Return {path: rule} of the violations of a certificate and its key after some changes."""
    given = {
        "certificate": issued().certificate_pem,
        "key": key_text(rsa_key()),
        "password": None,
        **changes,
    }
    with pytest.raises(certificate.UnusableCredentials) as why:
        certificate.read_pair(
            given["certificate"], given["key"], given["password"], now=datetime.now(UTC)
        )
    return {each["path"]: each["rule"] for each in why.value.more["errors"]}


def break_length(text: str) -> str:
    """Return PEM whose outermost value announces more bytes than it has."""
    return text.replace("MII", "MIJ", 1)


def elliptic() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def encrypted_key(rounds: int) -> str:
    """Return an encrypted key that announces a number of derivation rounds, instead of 2048."""
    der = base64.b64decode("".join(key_text(rsa_key(), "hush").split("-----")[2].split()))
    assert der.count(bytes.fromhex("02020800")) == 1
    return pem(der.replace(bytes.fromhex("02020800"), b"\x02\x04" + rounds.to_bytes(4)))


def out_of_proportion(
    p: int = 2**3217 - 1, q: int = 2**521 - 1, e: int = 65537
) -> rsa.RSAPrivateKey:
    """Return a key of 3,738 bits with a factor whose primality test would take seconds."""
    numbers = rsa.RSAPrivateNumbers(
        p, q, pow(e, -1, (p - 1) * (q - 1)), 1, 1, 1, rsa.RSAPublicNumbers(e, p * q)
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def damaged_key() -> rsa.RSAPrivateKey:
    """Return a key with a wrong private exponent."""
    numbers = rsa_key().private_numbers()
    own = {name: getattr(numbers, name) for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp")}
    own |= {"dmp1": own["dmp1"] - 2, "d": own["d"] - 2}
    numbers = rsa.RSAPrivateNumbers(**own, public_numbers=numbers.public_numbers)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def with_version(version: int) -> str:
    der = issued().der.replace(
        bytes.fromhex("a003020102"), bytes.fromhex("a0030201") + bytes([version]), 1
    )
    return (
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----"
    )


def with_serial(bits: int) -> str:
    """Return a certificate whose serial number has that many bits."""
    der = issued().der
    begin = der.index(bytes.fromhex("a003020102")) + 5
    serial = bytes([2, 0x82]) + (bits // 8).to_bytes(2) + b"\x7f" * (bits // 8)
    body = der[8:begin] + serial + der[begin + 2 + der[begin + 1] :]
    size = int.from_bytes(der[6:8]) + len(serial) - 2 - der[begin + 1]
    whole = b"\x30\x82" + size.to_bytes(2) + body
    der = b"\x30\x82" + len(whole).to_bytes(2) + whole
    return (
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----"
    )


def pem(der: bytes) -> str:
    label = "ENCRYPTED PRIVATE KEY-----"
    return f"-----BEGIN {label}\n{base64.encodebytes(der).decode()}-----END {label}"


HUSH = {"password": "hush"}
OLD: dict[str, Any] = {
    "not_before": SIGNED_AT - timedelta(days=9),
    "not_after": SIGNED_AT - timedelta(seconds=1),
}
WRONG = {
    "no certificate": (lambda: {"certificate": "here"}, {"/certificate": "format"}),
    "a broken certificate": (
        lambda: {"certificate": break_length(issued().certificate_pem)},
        {"/certificate": "format"},
    ),
    "a key for a certificate": (
        lambda: {"certificate": key_text(rsa_key())},
        {"/certificate": "format"},
    ),
    "an expired certificate": (
        lambda: {"certificate": issued(**OLD).certificate_pem},
        {"/certificate": "expired"},
    ),
    "a certificate of the future": (
        lambda: {
            "certificate": issued(not_before=datetime.now(UTC) + timedelta(days=1)).certificate_pem
        },
        {"/certificate": "not_yet_valid"},
    ),
    "a certificate without RSA": (
        lambda: {"certificate": issued(key=elliptic()).certificate_pem},
        {"/certificate": "rsa"},
    ),
    "a certificate of a short key": (
        lambda: issued(key=rsa_key("short", 1024)).pair,
        {"/certificate": "size", "/key": "size"},
    ),
    "no key": (lambda: {"key": "here"}, {"/key": "format"}),
    "a certificate for a key": (lambda: {"key": issued().certificate_pem}, {"/key": "format"}),
    "a broken key": (lambda: {"key": break_length(key_text(rsa_key()))}, {"/key": "format"}),
    "a key of another kind": (lambda: {"key": key_text(elliptic())}, {"/key": "rsa"}),
    "a key out of proportion": (lambda: {"key": key_text(out_of_proportion())}, {"/key": "format"}),
    "a damaged key": (lambda: {"key": key_text(damaged_key())}, {"/key": "format"}),
    "a certificate of no version": (
        lambda: {"certificate": with_version(4)},
        {"/certificate": "format"},
    ),
    "an endless serial number": (
        lambda: {"certificate": with_serial(24_000)},
        {"/certificate": "serial"},
    ),
    "another's key": (lambda: {"key": key_text(rsa_key("stranger"))}, {"/key": "match"}),
    "no password": (lambda: {"key": key_text(rsa_key(), "hush")}, {"/password": "required"}),
    "a wrong password": (
        lambda: {"key": key_text(rsa_key(), "hush"), "password": "loud"},
        {"/password": "password"},
    ),
    "a key that takes an hour to open": (
        lambda: {"key": encrypted_key(2**31 - 1), **HUSH},
        {"/key": "encryption"},
    ),
    "a truncated key": (lambda: {"key": pem(b"\x30\x82\x05"), **HUSH}, {"/key": "encryption"}),
    "an endlessly nested key": (
        lambda: {"key": pem(b"\x30\x82\x0f\x00" * 900), **HUSH},
        {"/key": "encryption"},
    ),
    "everything": (
        lambda: {"certificate": "x", "key": "x"},
        {"/certificate": "format", "/key": "format"},
    ),
}


@pytest.mark.parametrize("changes, faults", WRONG.values(), ids=WRONG)
def test_an_unusable_certificate_or_key_is_refused(
    changes: Callable[[], dict[str, str]], faults: dict[str, str]
) -> None:
    assert violations(**changes()) == faults


@pytest.mark.parametrize("layout", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, "h\u00fcsh"])
def test_a_private_key_is_read_in_every_common_format(
    layout: PrivateFormat, password: str | None
) -> None:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    text = rsa_key().private_bytes(Encoding.PEM, layout, encryption).decode().replace("\n", "\r\n")
    chain = f"Issued to us:\n{issued().certificate_pem}{authority().certificate_pem}"
    signer = certificate.read_pair(
        chain, f"Bag Attributes: none\n{text}", password, now=datetime.now(UTC)
    )
    assert signer.key.public_key() == signer.certificate.public_key == rsa_key().public_key()
    assert "hush" not in repr(signer)
    assert certificate.load_certificate(signer.certificate.der) == signer.certificate


COMPANY = {"tin_code": "c 20880050010", "registration_number": "2020-0123-4567"}
SOON, DAY = "The signing certificate expires on ", timedelta(days=1)


@pytest.mark.parametrize(
    "facts, wordings",
    [
        ({}, []),
        ({"not_after": SIGNED_AT + 30 * DAY}, []),
        (
            {"not_after": SIGNED_AT + 30 * DAY - timedelta(seconds=1)},
            [f"{SOON}2026-10-14, in 29 days."],
        ),
        ({"not_after": SIGNED_AT + DAY}, [f"{SOON}2026-09-15, in 1 day."]),
        ({"not_after": SIGNED_AT}, [f"{SOON}2026-09-14, within a day."]),
        ({"not_after": SIGNED_AT - DAY}, ["The signing certificate expired on 2026-09-13."]),
        (
            {"not_before": SIGNED_AT + DAY},
            ["The signing certificate is not valid before 2026-09-15."],
        ),
        (
            {"tin": None, "registration": None},
            [
                "The signing certificate has no organisation identifier (2.5.4.97); "
                "the portal rejects it with DS307.",
                "The signing certificate has no serial number of the subject (2.5.4.5); "
                "the portal rejects it with DS306.",
            ],
        ),
        (
            {"tin": "C25845632020"},
            [
                "The organisation identifier (2.5.4.97) of the signing certificate is "
                "C25845632020, not the company's TIN: the portal accepts that from an "
                "intermediary only, and otherwise rejects it with DS311.",
            ],
        ),
        (
            {"registration": "201901012345"},
            [
                "The serial number of the subject (2.5.4.5) of the signing certificate is "
                "201901012345, not the company's registration number: "
                "the portal accepts that from an intermediary only, and otherwise rejects it with "
                "DS312.",
            ],
        ),
    ],
)
def test_certificate_warnings_name_expiry_and_identity(
    facts: dict[str, Any], wordings: list[str]
) -> None:
    facts = {"not_before": SIGNED_AT - DAY, "not_after": SIGNED_AT + 300 * DAY, **facts}
    made = certificate.read_certificate(issued(**facts).certificate_pem)
    assert list(certificate.find_warnings(made, SIGNED_AT, COMPANY)) == wordings
    outside = [wording for wording in wordings if "expired" in wording or "before" in wording]
    refusal = (
        {"code": "DS304", "path": "/company/signing-certificate", "message": outside[0]}
        if outside
        else None
    )
    assert certificate.check_validity(made, SIGNED_AT) == refusal


def test_a_missing_registration_number_is_a_certificate_warning() -> None:
    made = issued(not_before=SIGNED_AT, not_after=SIGNED_AT + 300 * DAY).der
    company = {**COMPANY, "registration_number": None}
    (wording,) = certificate.find_warnings(certificate.load_certificate(made), SIGNED_AT, company)
    assert "202001234567, not the company's registration number" in wording
