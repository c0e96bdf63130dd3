"""Step 8 of the sandbox: signed documents, the published vector, and every signature error."""

import base64
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from service.sandbox.validators.signature import minify, without
from tests.conftest import ClientFactory
from tests.fixtures_sandbox import (
    SUPPLIER,
    Portal,
    element,
    encode_document,
    entry_of,
    find,
    put,
)
from tests.harness.certificates import DOCUMENT_SIGNING, PrivateKey, rsa_key, usage
from tests.harness.paths import DOCUMENTS
from tests.sandbox.test_sandbox_rules import step_codes

SHA1_URI = "http://www.w3.org/2000/09/xmldsig#sha1"
#: The published signature, and the document that has it. Portal: Appendix A
VECTOR = json.loads((DOCUMENTS / "signature_vector.json").read_text())
SIGNED_EXAMPLE = (DOCUMENTS / "signed_example.json").read_bytes()
#: Names of certificates as RFC 4514 writes them. The numbers are the registration number and TIN.
NUMBER = "201801024680"
SUBJECT = f"CN=Seri Maju,2.5.4.5={NUMBER},2.5.4.97={SUPPLIER},O=Perabot Seri Maju Sdn. Bhd.,C=MY"
AUTHORITY = VECTOR["issuer"].replace(", ", ",")

EXTENSION = "UBLExtensions.0.UBLExtension"
INFORMATION = f"{EXTENSION}.0.ExtensionContent.0.UBLDocumentSignatures.0.SignatureInformation"
SIGNATURE = f"{INFORMATION}.0.Signature.0"
REFERENCES = f"{SIGNATURE}.SignedInfo.0.Reference"
X509 = f"{SIGNATURE}.KeyInfo.0.X509Data.0"
PROPERTIES = f"{SIGNATURE}.Object.0.QualifyingProperties.0"
SIGNED = f"{PROPERTIES}.SignedProperties.0.SignedSignatureProperties.0"
CERT = f"{SIGNED}.SigningCertificate.0.Cert.0"


def make_certificate(
    subject: str = SUBJECT,
    issuer: str = AUTHORITY,
    key: PrivateKey | None = None,
    extensions: Iterable[x509.ExtensionType] = (),
) -> x509.Certificate:
    """Return a certificate of the authority, valid from 2020 to 2040."""
    authority, owner = (x509.Name.from_rfc4514_string(name) for name in (issuer, subject))
    key = key or rsa_key("signer")
    builder = x509.CertificateBuilder(authority, owner, key.public_key(), 0x51A7C0DE20260914)
    builder = builder.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2040, 1, 1))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(rsa_key("authority"), SHA256())


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def digest(raw: bytes) -> str:
    return base64_of(hashlib.sha256(raw).digest())


def sign(
    root: dict[str, Any],
    certificate: x509.Certificate | None = None,
    *changes: tuple[str, Any],
    key: str = "signer",
    content: bytes | None = None,
) -> dict[str, Any]:
    """Sign a document as the published one is signed.

    `changes` of (path, value) are made before the signed properties are digested. `content` is
    signed instead of the document.
    """
    certificate, content = certificate or make_certificate(), content or encode_document(root)
    der, (example,) = certificate.public_bytes(Encoding.DER), json.loads(SIGNED_EXAMPLE)["Invoice"]
    root["Invoice"][0] |= {name: example[name] for name in ("UBLExtensions", "Signature")}
    value = rsa_key(key).sign(content, padding.PKCS1v15(), SHA256())
    texts = {
        f"{X509}.X509Certificate": base64_of(der),
        f"{X509}.X509IssuerSerial.0.X509SerialNumber": str(certificate.serial_number),
        f"{CERT}.CertDigest.0.DigestValue": digest(der),
        f"{CERT}.IssuerSerial.0.X509SerialNumber": str(certificate.serial_number),
        f"{SIGNATURE}.SignatureValue": base64_of(value),
        f"{REFERENCES}.1.DigestValue": digest(content),
    }
    for path, text in texts.items():
        put(root, f"{path}.0._", text)
    for path, text in changes:
        put(root, path, text)
    properties = json.dumps(find(root, PROPERTIES), separators=(",", ":"), ensure_ascii=False)
    return put(root, f"{REFERENCES}.0.DigestValue.0._", digest(properties.encode()))


def in_both_places(name: str, text: str) -> list[tuple[str, str]]:
    """Return the changes of a member of the certificate's issuer and serial number."""
    holders = (f"{CERT}.IssuerSerial.0", f"{X509}.X509IssuerSerial.0")
    return [(f"{holder}.{name}.0._", text) for holder in holders]


async def unsigned(portal: Portal, number: str = "S-1", version: str = "1.1") -> dict[str, Any]:
    return put(await portal.fresh(number), "InvoiceTypeCode.0.listVersionID", version)


async def findings(portal: Portal, root: dict[str, Any]) -> list[str]:
    """Return the codes of step 8. No other step may have findings."""
    found = await step_codes(portal, root)
    assert set(found) <= {"08"}
    return found.get("08", [])


async def sent_as(portal: Portal, number: str, text: str) -> list[str]:
    """Return the codes of step 8 for a document of exactly that text."""
    answer = await (await portal.send(entry_of(text.encode(), number))).json()
    assert answer["rejectedDocuments"] == []
    results = (await portal.details(answer["acceptedDocuments"][0]["uuid"]))["validationResults"]
    step = results["validationSteps"][-1]
    return [each["errorCode"] for each in step["error"]["innerError"]] if "error" in step else []


async def test_the_published_vector_is_valid(portal: Portal) -> None:
    await portal.admin("settings", age_window_seconds=10**9)
    assert await findings(portal, json.loads(SIGNED_EXAMPLE)) == []


@pytest.mark.parametrize(
    "path, value",
    [
        ("InvoiceLine.0.Price.0.PriceAmount.0._", 145.5),
        ("AccountingCustomerParty.0.Party.0.PartyLegalEntity.0.RegistrationName.0._", "Tiga Rasa"),
        ("IssueTime.0._", "03:25:11Z"),
    ],
)
async def test_a_change_after_signing_invalidates_digest_and_signature(
    portal: Portal, path: str, value: float | str
) -> None:
    await portal.admin("settings", age_window_seconds=10**9)
    assert await findings(portal, put(json.loads(SIGNED_EXAMPLE), path, value)) == [
        "DS322",
        "DS333",
    ]


@pytest.mark.parametrize(
    "version, is_signed", [("1.0", False), ("1.1", True), ("1.2", False), ("1.3", True)]
)
async def test_only_signed_document_versions_have_a_signature_step(
    portal: Portal, version: str, is_signed: bool
) -> None:
    root = await unsigned(portal, version=version)
    details = await portal.details(await portal.accepted(sign(root) if is_signed else root))
    steps = details["validationResults"]["validationSteps"]
    assert [step["name"][4:6] for step in steps[:5]] == ["03", "04", "05", "06", "07"]
    signature = {"status": "Valid", "name": "Step08-Document Signature Validator"}
    assert steps[5:] == ([signature] if is_signed else [])


async def test_a_signature_error_is_reported_as_a_validation_step(portal: Portal) -> None:
    root = put(sign(await unsigned(portal)), f"{SIGNATURE}.SignatureValue.0._", "AAAA")
    details = await portal.details(await portal.accepted(root))
    step = details["validationResults"]["validationSteps"][-1]
    assert (details["status"], step["error"]["errorCode"]) == ("Invalid", "Error21")
    (inner,) = step["error"]["innerError"]
    assert (inner["errorCode"], inner["propertyName"]) == ("DS333", "SignatureValue")


# Errors in the signed properties, which are digested after the change.


@pytest.mark.parametrize(
    "code, path, value",
    [
        ("DS303", f"{SIGNED}.SigningTime", None),
        ("DS303", f"{SIGNED}.SigningTime.0._", ""),
        ("DS304", f"{SIGNED}.SigningTime.0._", "2019-12-31T23:59:59Z"),
        ("DS304", f"{SIGNED}.SigningTime.0._", "2040-01-01T00:00:01Z"),
        ("DS336", f"{SIGNED}.SigningTime.0._", "2026-09-14 03:25:40"),
        ("DS336", f"{SIGNED}.SigningTime.0._", "2026-09-14T03:25:40+08:00"),
        ("DS336", f"{SIGNED}.SigningTime.0._", "2026-02-30T03:25:40Z"),
        ("DS313", f"{CERT}.CertDigest.0.DigestMethod.0.Algorithm", SHA1_URI),
        ("DS317", f"{CERT}.CertDigest.0.DigestValue", None),
        ("DS318", f"{CERT}.CertDigest.0.DigestValue.0._", digest(b"another")),
        ("DS324", f"{CERT}.IssuerSerial.0.X509IssuerName", None),
        ("DS325", f"{CERT}.IssuerSerial.0.X509SerialNumber", None),
        ("DS326", f"{CERT}.IssuerSerial.0.X509IssuerName.0._", "CN=Another CA, C=MY"),
        ("DS327", f"{CERT}.IssuerSerial.0.X509SerialNumber.0._", "5A:C0:DE"),
        ("DS328", f"{CERT}.IssuerSerial.0.X509SerialNumber.0._", "5"),
        ("DS328", f"{CERT}.IssuerSerial.0.X509SerialNumber.0._", "5" * 5000),
    ],
)
async def test_invalid_signed_properties_have_their_error_code(
    portal: Portal, code: str, path: str, value: Any
) -> None:
    assert await findings(portal, sign(await unsigned(portal), None, (path, value))) == [code]


# Errors outside of the signed properties.


@pytest.mark.parametrize(
    "code, path, value",
    [
        ("DS300", f"{SIGNATURE}.Object.0", {"Properties": [{}]}),
        ("DS300", f"{SIGNATURE}.Object", None),
        ("DS300", f"{INFORMATION}.0.Signature", ["text"]),
        ("DS301", f"{INFORMATION}.0.Signature", None),
        ("DS301", "UBLExtensions", [{"UBLExtension": [{"ExtensionURI": element("urn:another")}]}]),
        ("DS305", f"{X509}.X509Certificate.0._", "AAAA"),
        ("DS305", f"{X509}.X509Certificate.0._", "no base64"),
        ("DS305", f"{SIGNATURE}.KeyInfo", None),
        ("DS314", f"{REFERENCES}.1.DigestMethod.0.Algorithm", SHA1_URI),
        ("DS315", f"{REFERENCES}.0.DigestMethod.0.Algorithm", SHA1_URI),
        ("DS316", f"{SIGNATURE}.SignedInfo.0.SignatureMethod.0.Algorithm", "urn:rsa-sha1"),
        ("DS319", f"{REFERENCES}.0.DigestValue", None),
        ("DS319", f"{REFERENCES}.0", None),
        ("DS320", f"{REFERENCES}.0.DigestValue.0._", digest(b"another")),
        ("DS320", f"{REFERENCES}.0.DigestValue.0._", 7),
        ("DS321", f"{REFERENCES}.1.DigestValue.0._", ""),
        ("DS321", f"{REFERENCES}.1", None),
        ("DS322", f"{REFERENCES}.1.DigestValue.0._", digest(b"another")),
        ("DS323", "Signature.0.SignatureMethod.0._", "urn:another"),
        ("DS323", "Signature.0", {}),
        ("DS326", f"{X509}.X509IssuerSerial.0.X509IssuerName.0._", "C=MY, O=Contoh Amanah Sdn Bhd"),
        ("DS328", f"{X509}.X509IssuerSerial.0.X509SerialNumber.0._", "7"),
        ("DS331", f"{SIGNATURE}.SignedInfo", None),
        ("DS332", f"{SIGNATURE}.SignatureValue", None),
        ("DS333", f"{SIGNATURE}.SignatureValue.0._", base64_of(b"\1" * 256)),
        ("DS335", f"{SIGNATURE}.SignatureValue.0._", "%"),
    ],
)
async def test_an_invalid_signature_has_its_error_code(
    portal: Portal, code: str, path: str, value: Any
) -> None:
    assert await findings(portal, put(sign(await unsigned(portal)), path, value)) == [code]


@pytest.mark.parametrize(
    "path", [INFORMATION, f"{INFORMATION}.0.Signature", "Signature", EXTENSION]
)
async def test_a_document_with_two_signatures_is_invalid(portal: Portal, path: Any) -> None:
    root = sign(await unsigned(portal))
    entries = find(root, path)
    entries.append(entries[0])
    assert await findings(portal, root) == ["DS302"]


@pytest.mark.parametrize(
    "members", [["UBLExtensions"], ["Signature"], ["UBLExtensions", "Signature"]]
)
async def test_a_document_without_a_signature_is_rejected_at_once(
    portal: Portal, members: list[str]
) -> None:
    root = sign(await unsigned(portal))
    for name in members:
        del root["Invoice"][0][name]
    (rejected,) = (await (await portal.submit(root)).json())["rejectedDocuments"]
    assert f"TooFewItems: #/Invoice[0].{members[0]}" in rejected["error"]["details"][0]["message"]


async def test_a_document_with_many_levels_cannot_be_parsed(portal: Portal) -> None:
    """Otherwise validation could fail where the submission did not, again at each request."""
    levels = json.loads("[" * 200 + "]" * 200)
    root = put(sign(await unsigned(portal)), f"{EXTENSION}.0.More", levels)
    (rejected,) = (await (await portal.submit(root)).json())["rejectedDocuments"]
    assert rejected["error"]["details"][0]["message"] == "Document cannot be parsed."


# Certificates.


@pytest.mark.parametrize(
    "code, part, other",
    [
        ("DS306", f"2.5.4.5={NUMBER},", ""),
        ("DS307", f"2.5.4.97={SUPPLIER},", ""),
        ("DS309", "O=Perabot Seri Maju Sdn. Bhd.,", ""),
        ("DS311", SUPPLIER, "C2084716530"),
        ("DS312", NUMBER, "199901012345"),
        ("DS337", NUMBER, "???"),
        ("DS338", SUPPLIER, "VATMY"),
    ],
)
async def test_an_invalid_certificate_subject_has_its_error_code(
    portal: Portal, code: str, part: str, other: str
) -> None:
    certificate = make_certificate(SUBJECT.replace(part, other))
    assert await findings(portal, sign(await unsigned(portal), certificate)) == [code]


@pytest.mark.parametrize(
    "made",
    [
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"extensions": [usage(digital_signature=True)]},
        {"extensions": [x509.ExtendedKeyUsage([x509.ObjectIdentifier("1.3.6.1.5.5.7.3.1")])]},
    ],
)
async def test_a_certificate_for_another_purpose_is_invalid(
    portal: Portal, made: dict[str, Any]
) -> None:
    signed = sign(await unsigned(portal), make_certificate(**made))
    assert await findings(portal, signed) == ["DS334"]


async def test_a_certificate_for_signing_documents_is_valid(portal: Portal) -> None:
    extensions = [usage(content_commitment=True), x509.ExtendedKeyUsage([DOCUMENT_SIGNING])]
    signed = sign(await unsigned(portal), make_certificate(extensions=extensions))
    assert await findings(portal, signed) == []


async def test_a_signature_by_another_key_is_invalid(portal: Portal) -> None:
    assert await findings(portal, sign(await unsigned(portal), key="another")) == ["DS333"]


ISSUER = VECTOR["issuer"]
COMMA_AUTHORITY = AUTHORITY.replace("Contoh Am", r"Contoh\, Am")
MAIL_AUTHORITY = f"1.2.840.113549.1.9.1=ca@contoh.example,{AUTHORITY}"


@pytest.mark.parametrize(
    "issuer, text, codes",
    [
        (COMMA_AUTHORITY, ISSUER.replace("Contoh Am", "Contoh, Am"), []),
        (COMMA_AUTHORITY, ISSUER.replace("Contoh Am", r"Contoh\, Am"), []),
        (MAIL_AUTHORITY, f"E=ca@contoh.example, {ISSUER}", []),
        ("2.5.4.97=C1,CN=Contoh", "2.5.4.97=C1, CN=Contoh", []),
        (AUTHORITY, ", ".join(reversed(ISSUER.split(", "))), ["DS326"] * 2),
        (AUTHORITY, ISSUER.replace("=", " = "), ["DS326"] * 2),
        (AUTHORITY, ISSUER.replace(", ", ","), ["DS326"] * 2),
    ],
)
async def test_the_issuer_is_compared_as_text(
    portal: Portal, issuer: str, text: str, codes: list[str]
) -> None:
    certificate, changes = make_certificate(issuer=issuer), in_both_places("X509IssuerName", text)
    assert await findings(portal, sign(await unsigned(portal), certificate, *changes)) == codes


async def test_a_hexadecimal_serial_number_is_accepted(portal: Portal) -> None:
    changes = in_both_places("X509SerialNumber", "0x51A7C0DE20260914")
    assert await findings(portal, sign(await unsigned(portal), None, *changes)) == []


INTERMEDIARY = "CN=I,2.5.4.5=201901012345,2.5.4.97=C25845632020,O=Sandbox Intermediary,C=MY"


async def test_an_intermediary_signs_with_its_own_certificate(portal: Portal) -> None:
    own = make_certificate(INTERMEDIARY)
    assert await findings(portal, sign(await unsigned(portal), own)) == []
    other = make_certificate(INTERMEDIARY.replace("201901012345", NUMBER))
    assert await findings(portal, sign(await unsigned(portal, "S-2"), other)) == ["DS312"]


async def test_a_certificate_of_an_unrelated_taxpayer_is_invalid(portal: Portal) -> None:
    await portal.admin("clients", client_id="own", client_secret="s", tin=SUPPLIER)
    await portal.login(None, "own", "s")
    signed = sign(await unsigned(portal), make_certificate(INTERMEDIARY))
    assert await findings(portal, signed) == ["DS311", "DS312"]


async def test_a_strict_register_refuses_an_unregistered_signer(portal: Portal) -> None:
    await portal.admin(
        "clients", client_id="new", client_secret="s", tin="C7777777770", intermediary=True
    )
    await portal.login(client_id="new", secret="s")
    certificate = make_certificate(SUBJECT.replace(SUPPLIER, "C7777777770"))
    assert await findings(portal, sign(await unsigned(portal), certificate)) == []
    await portal.admin("settings", strict_register=True)
    assert await findings(portal, sign(await unsigned(portal, "S-2"), certificate)) == ["DS330"]


@pytest.mark.parametrize("key, codes", [("authority", []), ("another", ["DS329"])])
async def test_a_certificate_needs_a_trusted_authority(
    tmp_path: Path, aiohttp_client: ClientFactory, key: str, codes: list[Any]
) -> None:
    trusted = tmp_path / "authorities.pem"
    authorities = [make_certificate(AUTHORITY, key=rsa_key(name)) for name in ("signer", key)]
    trusted.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in authorities))
    environment = {
        "SANDBOX_TRUSTED_CA": str(trusted),
        "SANDBOX_STATE": str(tmp_path / "sandbox.sqlite3"),
        "SANDBOX_PROCESSING_SECONDS": "0",
        "SANDBOX_RATE_SCALE": "0",
    }
    portal = await Portal(
        await aiohttp_client(create_sandbox(Settings.from_env(environment)))
    ).login()
    assert await findings(portal, sign(await unsigned(portal))) == codes


@pytest.mark.parametrize(
    "content", [None, b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_an_authority_file_without_certificates_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    if content:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(ValueError, match=r"SANDBOX_TRUSTED_CA=.*ca.pem.*PEM"):
        Settings.from_env({"SANDBOX_TRUSTED_CA": str(tmp_path / "ca.pem")})


# The signed text.


async def test_insignificant_white_space_is_not_signed(portal: Portal) -> None:
    root = sign(
        put(
            await unsigned(portal),
            "InvoiceLine.0.Item.0.Description.0._",
            'Kerusi  "makan"  é — \\ ©',
        )
    )
    assert await sent_as(portal, "S-1", json.dumps(root, indent=2, ensure_ascii=False)) == []


async def test_the_order_of_members_is_signed(portal: Portal) -> None:
    root = sign(await unsigned(portal))
    invoice = root["Invoice"][0]
    invoice["DocumentCurrencyCode"] = invoice.pop("DocumentCurrencyCode")
    assert await findings(portal, root) == ["DS322", "DS333"]


async def test_the_position_of_the_signature_is_not_signed(portal: Portal) -> None:
    root = sign(await unsigned(portal))
    invoice = root["Invoice"][0]
    moved = {name: invoice.pop(name) for name in ("UBLExtensions", "Signature")}
    root["Invoice"] = [{**moved, **invoice}]
    assert await findings(portal, root) == []


async def test_the_notation_of_numbers_is_signed(portal: Portal) -> None:
    """145 and 145.00 are the same number, but different texts."""
    root, other = await unsigned(portal), ('"_":145,', '"_":145.00,')
    content = encode_document(root).decode().replace(*other)
    text = encode_document(sign(root, content=content.encode())).decode().replace(*other)
    assert await sent_as(portal, "S-1", text) == []
    await portal.admin("settings", duplicate_detection=False)
    assert await sent_as(portal, "S-1", text.replace("145.00", "145.0")) == ["DS322", "DS333"]


@pytest.mark.parametrize(
    "text, minified",
    [
        ('{ "a" : [ 1.0 , -0 ] ,\n\t"b":"c  d" }', '{"a":[1.0,-0],"b":"c  d"}'),
        (r'{"a": "\"x\" \\ \/ \n"}', r'{"a":"\"x\" \\ \/ \n"}'),
        (r'{"a": "\u00e9 \u0041 \\u00e9 \ud83d\ude00"}', r'{"a":"é \u0041 \\u00e9 😀"}'),
    ],
)
def test_minify_keeps_numbers_and_escapes(text: str, minified: str) -> None:
    assert minify(text) == minified


@pytest.mark.parametrize(
    "invoice, left",
    [
        ('{"A":[{"S":1}],"S":[],"B":{}}', '{"A":[{"S":1}],"B":{}}'),
        ('{"S":[{"x":"}]"}]}', "{}"),
        ('{"S":1,"S":2,"A":3}', '{"A":3}'),
        ("{}", "{}"),
    ],
)
def test_without_removes_members_of_the_invoice(invoice: str, left: str) -> None:
    assert without(f'{{"S":1,"Invoice":[{invoice}]}}', {"S"}) == f'{{"S":1,"Invoice":[{left}]}}'
