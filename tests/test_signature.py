"""The signature of version 1.1: a published vector, round trips, and every single change to what was signed."""

import base64
import hashlib
import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone

import pytest
import simplejson
from certificates import authority, issued, key_text, rsa_key
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
from test_document import DOCUMENTS, GOLDEN, at, built, exactly

from service.documents.signing import certificate, signature
from service.documents.ubl import document

VECTOR = json.loads((DOCUMENTS / "signature_vector.json").read_text())
DER = base64.b64decode("".join(VECTOR["certificate"]))
SIGNATURE_VALUE = base64.b64decode("".join(VECTOR["signature_value"]))
SIGNED_AT = datetime(2026, 9, 14, 3, 25, 40, tzinfo=UTC)
BLOCK = "UBLExtensions.UBLExtension.ExtensionContent.UBLDocumentSignatures.SignatureInformation.Signature"
CERT = (
    "Object.QualifyingProperties.SignedProperties.SignedSignatureProperties.SigningCertificate.Cert"
)


def as_written(raw):
    """A document as Python values that minify to the same bytes again: numbers stay as they are written."""
    return simplejson.loads(raw, parse_float=simplejson.RawJSON, parse_int=simplejson.RawJSON)


def minified(value):
    return simplejson.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def digest(content):
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def parted(signed):
    """(what was signed, the block that signs it) of a signed document as as_written gives it."""
    (invoice,) = signed["Invoice"]
    kept = {
        name: member
        for name, member in invoice.items()
        if name not in ("UBLExtensions", "Signature")
    }
    return {**signed, "Invoice": [kept]}, at(invoice, BLOCK)


def verify(bare, block):
    """Fails unless a block is the signature of a document, looked at as the portal would. Portal: 11.3"""
    content, der = minified(bare), base64.b64decode(at(block, "KeyInfo.X509Data.X509Certificate"))
    properties, whole = [at(each, "DigestValue") for each in block["SignedInfo"][0]["Reference"]]
    assert at(block, f"{CERT}.CertDigest.DigestValue") == digest(der)
    assert properties == digest(minified(at(block, "Object.QualifyingProperties")))
    key = x509.load_der_x509_certificate(der).public_key()
    key.verify(
        base64.b64decode(at(block, "SignatureValue")), content, padding.PKCS1v15(), hashes.SHA256()
    )
    assert whole == digest(content)


# The vector


@pytest.fixture
def unsigned():
    """The vector's document: the portal's example, as one of version 1.1."""
    example = exactly((DOCUMENTS / "portal_example.json").read_bytes())
    example["Invoice"][0]["InvoiceTypeCode"][0]["listVersionID"] = "1.1"
    return example


@pytest.fixture
def named():
    return certificate.of_der(DER)


def test_the_vectors_document_has_its_digest(unsigned):
    content = document.encode(unsigned)
    assert (len(content), signature.digest(content)) == (
        VECTOR["document_length"],
        VECTOR["document_digest"],
    )


def test_the_vectors_certificate_is_named_as_published(named):
    assert signature.digest(named.der) == VECTOR["certificate_digest"]
    assert (named.issuer, named.subject, str(named.serial)) == tuple(
        VECTOR[n] for n in ("issuer", "subject", "serial")
    )
    assert (named.tin, named.registration) == ("C4821093650", "201801024680")
    assert (named.not_before.isoformat(), named.not_after.year) == (
        "2026-01-01T00:00:00+00:00",
        2036,
    )


def test_the_vectors_properties_are_the_published_bytes(named):
    content = document.encode(signature.qualifying_properties(named, SIGNED_AT))
    assert content.decode() == VECTOR["properties"] and len(content) == 519
    assert signature.digest(content) == VECTOR["properties_digest"]


def test_the_vectors_document_is_assembled_to_the_published_bytes(unsigned, named):
    raw = signature.assemble(document.encode(unsigned), named, SIGNATURE_VALUE, SIGNED_AT)
    assert len(raw) == VECTOR["signed_length"]
    assert hashlib.sha256(raw).hexdigest() == VECTOR["signed_sha256"]
    verify(*parted(as_written(raw)))


# Round trips


@pytest.fixture(scope="module")
def signer():
    return certificate.read_pair(*issued().pair.values())


@pytest.mark.parametrize("name", GOLDEN)
def test_every_kind_of_document_is_signed_so_that_it_verifies(signer, name):
    whole = built(GOLDEN[name], version="1.1")
    raw = signature.sign(whole, signer, SIGNED_AT)
    verify(*parted(as_written(raw)))
    assert document.encode(exactly(raw)) == raw == minified(as_written(raw))
    assert list(exactly(raw)["Invoice"][0])[-2:] == ["UBLExtensions", "Signature"]
    assert document.encode(signature.unsigned(exactly(raw))) == document.encode(whole)


def test_what_is_signed_keeps_texts_and_numbers_as_they_are_written(signer):
    source = deepcopy(GOLDEN["usd_invoice"])
    source["lineItems"][0]["description"] = 'Kopi "tarik" \\ 拿铁 é \U0001f9cb </script>'
    verify(*parted(as_written(signature.sign(built(source, version="1.1"), signer, SIGNED_AT))))


def test_a_document_that_is_signed_again_carries_one_signature(signer):
    whole = built(GOLDEN["invoice"], version="1.1")
    first = signature.sign(whole, signer, SIGNED_AT)
    assert signature.sign(exactly(first), signer, SIGNED_AT) == first


@pytest.mark.parametrize("wrong", [{"Invoice": [{}, {}]}, {"Invoice": [{}], "_D": "x"}])
def test_only_a_document_that_ends_with_its_one_invoice_is_signed(signer, wrong):
    with pytest.raises(ValueError):
        signature.sign(wrong, signer, SIGNED_AT)


def test_the_signing_time_is_utc_to_the_second(signer):
    local = SIGNED_AT.astimezone(timezone(timedelta(hours=8))) + timedelta(microseconds=999_999)
    signed = exactly(signature.sign(built(GOLDEN["invoice"], version="1.1"), signer, local))
    properties = "Object.QualifyingProperties.SignedProperties.SignedSignatureProperties"
    assert at(signed["Invoice"][0], f"{BLOCK}.{properties}.SigningTime") == "2026-09-14T03:25:40Z"


def test_the_signature_of_another_key_does_not_verify(signer):
    other = certificate.Signer(signer.certificate, rsa_key("stranger"))
    with pytest.raises(InvalidSignature):
        verify(
            *parted(
                as_written(
                    signature.sign(built(GOLDEN["invoice"], version="1.1"), other, SIGNED_AT)
                )
            )
        )


# Changes


def changed(holder):
    """Makes one change at a time to what a container holds, at any depth; each is undone before the next is made."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        kept = holder[key]
        for other in others(kept):
            holder[key] = other
            yield key, other
        holder[key] = kept
        if isinstance(kept, (dict, list)):
            yield from changed(kept)


def others(value):
    """Values that differ from one by as little as can be."""
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
def test_after_any_single_change_it_no_longer_verifies(signer, name):
    signed = signature.sign(built(GOLDEN[name], version="1.1"), signer, SIGNED_AT)
    bare, block = parted(as_written(signed))
    whole, before, made = {"document": bare}, minified(bare), 0
    for place, other in changed(whole):
        made += 1
        content = minified(whole["document"])
        assert digest(content) != digest(before), (place, other)
        if made % 7 == 0:  # the digest alone takes a tenth of the time
            with pytest.raises(InvalidSignature):
                verify(whole["document"], block)
    assert made > 1000 and minified(bare) == before
    verify(bare, block)


# Certificates


def test_a_name_is_written_in_the_form_that_is_asked_for():
    name = x509.Name.from_rfc4514_string(r"CN=Contoh\, Issuing = CA,O=Contoh Amanah Sdn Bhd,C=MY")
    forms = {form: certificate.name_text(name, form) for form in certificate.ISSUER_FORMS}
    assert forms == {
        "rfc2253": r"CN=Contoh\, Issuing = CA, O=Contoh Amanah Sdn Bhd, C=MY",
        "encoded": r"C=MY, O=Contoh Amanah Sdn Bhd, CN=Contoh\, Issuing = CA",
        "rfc2253_blanks": r"CN = Contoh\, Issuing = CA, O = Contoh Amanah Sdn Bhd, C = MY",
    }


def test_the_form_of_a_certificate_is_that_of_its_signatures():
    signer = certificate.read_pair(*issued().pair.values(), issuer_form="encoded")
    _, block = parted(
        as_written(signature.sign(built(GOLDEN["invoice"], version="1.1"), signer, SIGNED_AT))
    )
    encoded = "C=MY, O=Contoh Amanah Sdn Bhd, CN=Contoh Test Issuing CA"
    assert at(block, f"{CERT}.IssuerSerial.X509IssuerName") == encoded
    assert at(block, "KeyInfo.X509Data.X509IssuerSerial.X509IssuerName") == encoded


def told(**changes):
    """{path: rule} of what is wrong with a certificate and its key, once something of them is another."""
    given = {
        "certificate": issued().certificate_pem,
        "key": key_text(rsa_key()),
        "password": None,
        **changes,
    }
    with pytest.raises(certificate.Unusable) as why:
        certificate.read_pair(given["certificate"], given["key"], given["password"], now=SIGNED_AT)
    return {each["path"]: each["rule"] for each in why.value.faults}


def broken(text):
    """PEM whose outermost value is longer than its bytes."""
    return text.replace("MII", "MIJ", 1)


def elliptic():
    return ec.generate_private_key(ec.SECP256R1())


def encrypted(rounds):
    """A key whose text says that its password takes so many rounds of derivation: 2048 in truth."""
    der = base64.b64decode("".join(key_text(rsa_key(), "hush").split("-----")[2].split()))
    assert der.count(bytes.fromhex("02020800")) == 1
    return pem(der.replace(bytes.fromhex("02020800"), b"\x02\x04" + rounds.to_bytes(4)))


def out_of_proportion(p=2**3217 - 1, q=2**521 - 1, e=65537):
    """A key of 3,738 bits with one factor so long that the library would take seconds to find out whether it is prime."""
    numbers = rsa.RSAPrivateNumbers(
        p, q, pow(e, -1, (p - 1) * (q - 1)), 1, 1, 1, rsa.RSAPublicNumbers(e, p * q)
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def damaged():
    """A key whose private exponent is another one's."""
    numbers = rsa_key().private_numbers()
    own = {name: getattr(numbers, name) for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp")}
    own |= {"dmp1": own["dmp1"] - 2, "d": own["d"] - 2}
    numbers = rsa.RSAPrivateNumbers(**own, public_numbers=numbers.public_numbers)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def with_version(version):
    der = issued().der.replace(
        bytes.fromhex("a003020102"), bytes.fromhex("a0030201") + bytes([version]), 1
    )
    return (
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----"
    )


def with_serial(bits):
    """A certificate whose serial number has more bits than any may have."""
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


def pem(der):
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{base64.encodebytes(der).decode()}-----END ENCRYPTED PRIVATE KEY-----"


OLD = {"not_before": SIGNED_AT - timedelta(days=9), "not_after": SIGNED_AT - timedelta(seconds=1)}
WRONG = {
    "no certificate": (lambda: {"certificate": "here"}, {"/certificate": "format"}),
    "a broken certificate": (lambda: {"certificate": broken(issued().certificate_pem)}, {"/certificate": "format"}),
    "a key for a certificate": (lambda: {"certificate": key_text(rsa_key())}, {"/certificate": "format"}),
    "an expired certificate": (lambda: {"certificate": issued(**OLD).certificate_pem}, {"/certificate": "expired"}),
    "a certificate without RSA": (lambda: {"certificate": issued(key=elliptic()).certificate_pem}, {"/certificate": "rsa"}),
    "a certificate of a short key": (lambda: issued(key=rsa_key("short", 1024)).pair, {"/certificate": "size", "/key": "size"}),
    "no key": (lambda: {"key": "here"}, {"/key": "format"}),
    "a certificate for a key": (lambda: {"key": issued().certificate_pem}, {"/key": "format"}),
    "a broken key": (lambda: {"key": broken(key_text(rsa_key()))}, {"/key": "format"}),
    "a key of another kind": (lambda: {"key": key_text(elliptic())}, {"/key": "rsa"}),
    "a key out of proportion": (lambda: {"key": key_text(out_of_proportion())}, {"/key": "format"}),
    "a damaged key": (lambda: {"key": key_text(damaged())}, {"/key": "format"}),
    "a certificate of no version": (lambda: {"certificate": with_version(4)}, {"/certificate": "format"}),
    "an endless serial number": (lambda: {"certificate": with_serial(24_000)}, {"/certificate": "serial"}),
    "another's key": (lambda: {"key": key_text(rsa_key("stranger"))}, {"/key": "match"}),
    "no password": (lambda: {"key": key_text(rsa_key(), "hush")}, {"/password": "required"}),
    "a wrong password": (lambda: {"key": key_text(rsa_key(), "hush"), "password": "loud"}, {"/password": "password"}),
    "a key that takes an hour to open": (lambda: {"key": encrypted(2**31 - 1), "password": "hush"}, {"/key": "encryption"}),
    "a key that is cut short": (lambda: {"key": pem(b"\x30\x82\x05"), "password": "hush"}, {"/key": "encryption"}),
    "a key nested without end": (lambda: {"key": pem(b"\x30\x82\x0f\x00" * 900), "password": "hush"}, {"/key": "encryption"}),
    "everything": (lambda: {"certificate": "x", "key": "x"}, {"/certificate": "format", "/key": "format"}),
}  # fmt: skip


@pytest.mark.parametrize("changes, faults", WRONG.values(), ids=WRONG)
def test_a_certificate_or_key_that_cannot_be_used_is_refused(changes, faults):
    assert told(**changes()) == faults


@pytest.mark.parametrize("layout", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, "h\u00fcsh"])
def test_a_key_is_read_however_it_is_written(layout, password):
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    text = rsa_key().private_bytes(Encoding.PEM, layout, encryption).decode().replace("\n", "\r\n")
    chain = f"Issued to us:\n{issued().certificate_pem}{authority().certificate_pem}"
    signer = certificate.read_pair(chain, f"Bag Attributes: none\n{text}", password, now=SIGNED_AT)
    assert signer.key.public_key() == signer.certificate.public_key == rsa_key().public_key()
    assert (
        "hush" not in repr(signer)
        and certificate.of_der(signer.certificate.der) == signer.certificate
    )


COMPANY = {"tin_code": "c 20880050010", "registration_number": "2020-0123-4567"}
SOON, DAY = "The signing certificate expires on ", timedelta(days=1)


@pytest.mark.parametrize(
    "facts, wordings",
    [
        ({}, []),
        ({"not_after": SIGNED_AT + 30 * DAY}, []),
        ({"not_after": SIGNED_AT + 30 * DAY - timedelta(seconds=1)}, [f"{SOON}2026-10-14, in 29 days."]),
        ({"not_after": SIGNED_AT + DAY}, [f"{SOON}2026-09-15, in 1 day."]),
        ({"not_after": SIGNED_AT}, [f"{SOON}2026-09-14, within a day."]),
        ({"not_after": SIGNED_AT - DAY}, ["The signing certificate expired on 2026-09-13."]),
        ({"not_before": SIGNED_AT + DAY}, ["The signing certificate is not valid before 2026-09-15."]),
        ({"tin": None, "registration": None}, [
            "The signing certificate has no organisation identifier (2.5.4.97); the portal rejects it with DS307.",
            "The signing certificate has no serial number of the subject (2.5.4.5); the portal rejects it with DS306.",
        ]),
        ({"tin": "C25845632020"}, [
            "The organisation identifier (2.5.4.97) of the signing certificate is C25845632020, not the company's TIN: "
            "the portal accepts that from an intermediary only, and otherwise rejects it with DS311.",
        ]),
        ({"registration": "201901012345"}, [
            "The serial number of the subject (2.5.4.5) of the signing certificate is 201901012345, not the company's "
            "registration number: the portal accepts that from an intermediary only, and otherwise rejects it with DS312.",
        ]),
    ],
)  # fmt: skip
def test_a_person_is_told_what_a_certificate_is_about_to_be(facts, wordings):
    facts = {"not_before": SIGNED_AT - DAY, "not_after": SIGNED_AT + 300 * DAY, **facts}
    made = certificate.read_certificate(issued(**facts).certificate_pem)
    assert certificate.warnings(made, SIGNED_AT, COMPANY) == wordings
    outside = [wording for wording in wordings if "expired" in wording or "before" in wording]
    refusal = (
        {"code": "DS304", "path": "/company/signing-certificate", "message": outside[0]}
        if outside
        else None
    )
    assert certificate.outside_validity(made, SIGNED_AT) == refusal


def test_a_company_without_a_registration_number_is_told_of_another_one():
    made = issued(not_before=SIGNED_AT, not_after=SIGNED_AT + 300 * DAY).der
    company = {**COMPANY, "registration_number": None}
    (wording,) = certificate.warnings(certificate.of_der(made), SIGNED_AT, company)
    assert "202001234567, not the company's registration number" in wording
