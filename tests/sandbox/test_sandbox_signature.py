"""Step 8 of the sandbox: signed documents, the published vector, and every signature error."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from service.sandbox.app import create_sandbox
from service.sandbox.minified import minify, without
from service.sandbox.settings import Settings
from tests.conftest import ClientFactory
from tests.fixtures_sandbox import SUPPLIER, Portal, document, element, encode_document, entry, put
from tests.harness.paths import DOCUMENTS
from tests.sandbox.test_sandbox_rules import step_codes

#: Changes signed properties in place.
Change = Callable[[Any], None]

SHA256_URI = "http://www.w3.org/2001/04/xmlenc#sha256"
METHOD = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
URN = "urn:oasis:names:specification:ubl:dsig:enveloped:xades"
#: The published signature.
VECTOR = json.loads((DOCUMENTS / "signature_vector.json").read_text())
NUMBER = "201801024680"
SHA1_URI = "http://www.w3.org/2000/09/xmldsig#sha1"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def make_name(**parts: str | None) -> x509.Name:
    """Return an X.509 name of the parts that are given, in the order of the arguments."""
    kinds = {
        "C": "COUNTRY_NAME",
        "O": "ORGANIZATION_NAME",
        "OU": "ORGANIZATIONAL_UNIT_NAME",
        "CN": "COMMON_NAME",
    }
    kinds |= {"tin": "ORGANIZATION_IDENTIFIER", "number": "SERIAL_NUMBER", "mail": "EMAIL_ADDRESS"}
    return x509.Name(
        [
            x509.NameAttribute(getattr(NameOID, kinds[kind]), text)
            for kind, text in parts.items()
            if text
        ]
    )


SUBJECT = {
    "C": "MY",
    "O": "Perabot Seri Maju Sdn. Bhd.",
    "tin": SUPPLIER,
    "number": NUMBER,
    "CN": "Perabot Seri Maju",
}
AUTHORITY = {
    "C": "MY",
    "O": "Contoh Amanah Sdn Bhd",
    "OU": "Test Only",
    "CN": "Contoh Test Issuing CA",
}


def make_certificate(
    subject: dict[str, Any] = SUBJECT,
    issuer: dict[str, Any] = AUTHORITY,
    key: Any = None,
    usage: x509.KeyUsage | None = None,
    extended: x509.ExtendedKeyUsage | None = None,
) -> x509.Certificate:
    """Return a certificate of the authority, valid from 2020 to 2040.

    `usage` and `extended` are its extensions.
    """
    key = key or rsa_key("signer")
    builder = x509.CertificateBuilder(
        make_name(**issuer), make_name(**subject), key.public_key(), 0x51A7C0DE20260914
    )
    builder = builder.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2040, 1, 1))
    for extension in filter(None, (usage, extended)):
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(rsa_key("authority"), SHA256())


def usage(**set_: bool) -> x509.KeyUsage:
    names = "digital_signature content_commitment key_encipherment data_encipherment key_agreement"
    names += " key_cert_sign crl_sign encipher_only decipher_only"
    return x509.KeyUsage(**{name: set_.get(name, False) for name in names.split()})


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def digest(raw: bytes) -> str:
    return base64_of(hashlib.sha256(raw).digest())


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@dataclass
class Signing:
    """The claims of a signature. Each member can be replaced by a false one."""

    certificate: str
    cert_digest: str
    issuer: str
    serial: str
    time: str = VECTOR["signing_time"]
    subject: str = VECTOR["subject"]

    def properties(self) -> dict[str, Any]:
        names = {"X509IssuerName": element(self.issuer), "X509SerialNumber": element(self.serial)}
        cert_digest = {
            "DigestMethod": element("", Algorithm=SHA256_URI),
            "DigestValue": element(self.cert_digest),
        }
        cert = {"CertDigest": [cert_digest], "IssuerSerial": [names]}
        signed = {"SigningTime": element(self.time), "SigningCertificate": [{"Cert": [cert]}]}
        properties = {"Id": "id-xades-signed-props", "SignedSignatureProperties": [signed]}
        return {"Target": "signature", "SignedProperties": [properties]}


def of_certificate(
    certificate: x509.Certificate, issuer: str = VECTOR["issuer"], **changes: Any
) -> Signing:
    der = certificate.public_bytes(Encoding.DER)
    signing = Signing(base64_of(der), digest(der), issuer, str(certificate.serial_number))
    return replace(signing, **changes)


def digest_members(content: bytes) -> dict[str, Any]:
    return {
        "DigestMethod": element("", Algorithm=SHA256_URI),
        "DigestValue": element(digest(content)),
    }


def signature_of(
    signing: Signing, properties: dict[str, Any], content: bytes, value: str
) -> dict[str, Any]:
    """Return the members that a signature adds to the invoice, in the published order."""
    names = {"X509IssuerName": element(signing.issuer), "X509SerialNumber": element(signing.serial)}
    data = {
        "X509Certificate": element(signing.certificate),
        "X509SubjectName": element(signing.subject),
        "X509IssuerSerial": [names],
    }
    of_properties = {
        "Type": "http://uri.etsi.org/01903/v1.3.2#SignedProperties",
        "URI": "#id-xades-signed-props",
    }
    of_properties |= digest_members(compact(properties).encode())
    of_document = {"Type": "", "URI": "", **digest_members(content)}
    signature = {
        "Id": "signature",
        "Object": [{"QualifyingProperties": [properties]}],
        "KeyInfo": [{"X509Data": [data]}],
        "SignatureValue": element(value),
        "SignedInfo": [
            {
                "SignatureMethod": element("", Algorithm=METHOD),
                "Reference": [of_properties, of_document],
            },
        ],
    }
    information = {
        "ID": element("urn:oasis:names:specification:ubl:signature:1"),
        "ReferencedSignatureID": element("urn:oasis:names:specification:ubl:signature:Invoice"),
        "Signature": [signature],
    }
    extension = {
        "ExtensionURI": element(URN),
        "ExtensionContent": [{"UBLDocumentSignatures": [{"SignatureInformation": [information]}]}],
    }
    own = {
        "ID": element("urn:oasis:names:specification:ubl:signature:Invoice"),
        "SignatureMethod": element(URN),
    }
    return {"UBLExtensions": [{"UBLExtension": [extension]}], "Signature": [own]}


def sign(
    root: dict[str, Any],
    signing: Signing | None = None,
    change: Change | None = None,
    key: rsa.RSAPrivateKey | None = None,
) -> dict[str, Any]:
    """Sign a document. `change` is applied to the signed properties before they are digested."""
    signing = signing or of_certificate(make_certificate())
    properties, content = signing.properties(), encode_document(root)
    if change:
        change(properties)
    value = (key or rsa_key("signer")).sign(content, padding.PKCS1v15(), SHA256())
    root["Invoice"][0] |= signature_of(signing, properties, content, base64_of(value))
    return root


def vector_document() -> dict[str, Any]:
    root = put(document(), "InvoiceTypeCode.0.listVersionID", "1.1")
    certificate, value = ("".join(VECTOR[name]) for name in ("certificate", "signature_value"))
    signing = Signing(certificate, VECTOR["certificate_digest"], VECTOR["issuer"], VECTOR["serial"])
    root["Invoice"][0] |= signature_of(signing, signing.properties(), encode_document(root), value)
    return root


async def unsigned(portal: Portal, number: str = "S-1", version: str = "1.1") -> dict[str, Any]:
    return put(await portal.fresh(number), "InvoiceTypeCode.0.listVersionID", version)


async def findings(portal: Portal, root: dict[str, Any]) -> list[str]:
    """Return the codes of step 8. No other step may have findings."""
    found = await step_codes(portal, root)
    assert set(found) <= {"08"}
    return found.get("08", [])


async def sent_as(portal: Portal, number: str, text: str) -> list[str]:
    """Return the codes of step 8 for a document of exactly that text."""
    raw = text.encode()
    changes = {"document": base64_of(raw), "documentHash": hashlib.sha256(raw).hexdigest()}
    body = {"documents": [entry(document(number), **changes)]}
    answer = await (await portal.call("POST", "/documentsubmissions/", json=body)).json()
    assert answer["rejectedDocuments"] == []
    results = (await portal.details(answer["acceptedDocuments"][0]["uuid"]))["validationResults"]
    step = results["validationSteps"][-1]
    return [each["errorCode"] for each in step["error"]["innerError"]] if "error" in step else []


def test_the_signed_vector_has_the_published_hash() -> None:
    raw = encode_document(vector_document())
    assert len(raw) == VECTOR["signed_length"]
    assert hashlib.sha256(raw).hexdigest() == VECTOR["signed_sha256"]


async def test_the_published_vector_is_valid(portal: Portal) -> None:
    await portal.admin("settings", age_window_seconds=10**9)
    assert await findings(portal, vector_document()) == []


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
    assert await findings(portal, put(vector_document(), path, value)) == ["DS322", "DS333"]


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

CERT = ("SignedProperties", 0, "SignedSignatureProperties", 0, "SigningCertificate", 0, "Cert", 0)
TIME = (*CERT[:4], "SigningTime")


def setting(value: Any, *path: str | int) -> Change:
    """Return a change that sets the member at a path, or removes it if the value is None."""

    def change(node: Any) -> None:
        for name in path[:-1]:
            node = node[name]
        if value is None:
            del node[path[-1]]
        else:
            node[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "code, change",
    [
        ("DS303", setting(None, *TIME)),
        ("DS303", setting("", *TIME, 0, "_")),
        ("DS304", setting("2019-12-31T23:59:59Z", *TIME, 0, "_")),
        ("DS304", setting("2040-01-01T00:00:01Z", *TIME, 0, "_")),
        ("DS336", setting("2026-09-14 03:25:40", *TIME, 0, "_")),
        ("DS336", setting("2026-09-14T03:25:40+08:00", *TIME, 0, "_")),
        ("DS336", setting("2026-02-30T03:25:40Z", *TIME, 0, "_")),
        ("DS313", setting(SHA1_URI, *CERT, "CertDigest", 0, "DigestMethod", 0, "Algorithm")),
        ("DS317", setting(None, *CERT, "CertDigest", 0, "DigestValue")),
        ("DS318", setting(digest(b"another"), *CERT, "CertDigest", 0, "DigestValue", 0, "_")),
        ("DS324", setting(None, *CERT, "IssuerSerial", 0, "X509IssuerName")),
        ("DS325", setting(None, *CERT, "IssuerSerial", 0, "X509SerialNumber")),
        (
            "DS326",
            setting("CN=Another CA, C=MY", *CERT, "IssuerSerial", 0, "X509IssuerName", 0, "_"),
        ),
        ("DS327", setting("5A:C0:DE", *CERT, "IssuerSerial", 0, "X509SerialNumber", 0, "_")),
        ("DS328", setting("5", *CERT, "IssuerSerial", 0, "X509SerialNumber", 0, "_")),
        ("DS328", setting("5" * 5000, *CERT, "IssuerSerial", 0, "X509SerialNumber", 0, "_")),
    ],
)
async def test_invalid_signed_properties_have_their_error_code(
    portal: Portal, code: str, change: Any
) -> None:
    assert await findings(portal, sign(await unsigned(portal), change=change)) == [code]


# Errors outside of the signed properties.

EXTENSION = "UBLExtensions.0.UBLExtension"
INFORMATION = f"{EXTENSION}.0.ExtensionContent.0.UBLDocumentSignatures.0.SignatureInformation"
SIGNATURE = f"{INFORMATION}.0.Signature.0"
REFERENCES = f"{SIGNATURE}.SignedInfo.0.Reference"
X509 = f"{SIGNATURE}.KeyInfo.0.X509Data.0"


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
    node = root["Invoice"][0]
    for name in path.split("."):
        node = node[int(name) if name.isdigit() else name]
    node.append(node[0])
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


# Certificates.


@pytest.mark.parametrize(
    "code, subject",
    [
        ("DS306", {"number": None}),
        ("DS307", {"tin": None}),
        ("DS309", {"O": None}),
        ("DS311", {"tin": "C2084716530"}),
        ("DS312", {"number": "199901012345"}),
        ("DS337", {"number": "???"}),
        ("DS338", {"tin": "VATMY"}),
    ],
)
async def test_an_invalid_certificate_subject_has_its_error_code(
    portal: Portal, code: str, subject: dict[str, Any]
) -> None:
    signing = of_certificate(make_certificate({**SUBJECT, **subject}))
    assert await findings(portal, sign(await unsigned(portal), signing)) == [code]


@pytest.mark.parametrize(
    "made",
    [
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"usage": usage(digital_signature=True)},
        {"extended": x509.ExtendedKeyUsage([x509.ObjectIdentifier("1.3.6.1.5.5.7.3.1")])},
    ],
)
async def test_a_certificate_for_another_purpose_is_invalid(
    portal: Portal, made: dict[str, Any]
) -> None:
    signing = of_certificate(make_certificate(**made))
    assert await findings(portal, sign(await unsigned(portal), signing)) == ["DS334"]


async def test_a_certificate_for_signing_documents_is_valid(portal: Portal) -> None:
    documents = x509.ExtendedKeyUsage([x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.12")])
    made = make_certificate(usage=usage(content_commitment=True), extended=documents)
    assert await findings(portal, sign(await unsigned(portal), of_certificate(made))) == []


async def test_a_signature_by_another_key_is_invalid(portal: Portal) -> None:
    assert await findings(portal, sign(await unsigned(portal), key=rsa_key("another"))) == ["DS333"]


UNIT = "CN=Contoh Test Issuing CA, OU=Test Only"
ISSUER = f"{UNIT}, O=Contoh Amanah Sdn Bhd, C=MY"


@pytest.mark.parametrize(
    "issuer, text, codes",
    [
        ({**AUTHORITY, "O": "Contoh, Amanah"}, f"{UNIT}, O=Contoh, Amanah, C=MY", []),
        ({**AUTHORITY, "O": "Contoh, Amanah"}, f"{UNIT}, O=Contoh\\, Amanah, C=MY", []),
        (
            {**AUTHORITY, "mail": "ca@contoh.example"},
            f"E=ca@contoh.example, {UNIT}, O=Contoh Amanah Sdn Bhd, C=MY",
            [],
        ),
        ({"CN": "Contoh", "tin": "C1"}, "2.5.4.97=C1, CN=Contoh", []),
        (AUTHORITY, ", ".join(reversed(ISSUER.split(", "))), ["DS326"] * 2),
        (AUTHORITY, ISSUER.replace("=", " = "), ["DS326"] * 2),
        (AUTHORITY, ISSUER.replace(", ", ","), ["DS326"] * 2),
    ],
)
async def test_the_issuer_is_compared_as_text(
    portal: Portal, issuer: Any, text: str, codes: Any
) -> None:
    signing = of_certificate(make_certificate(issuer=issuer), issuer=text)
    assert await findings(portal, sign(await unsigned(portal), signing)) == codes


async def test_a_hexadecimal_serial_number_is_accepted(portal: Portal) -> None:
    signing = of_certificate(make_certificate(), serial="0x51A7C0DE20260914")
    assert await findings(portal, sign(await unsigned(portal), signing)) == []


INTERMEDIARY = {
    "C": "MY",
    "O": "Sandbox Intermediary",
    "tin": "C25845632020",
    "number": "201901012345",
    "CN": "I",
}


async def test_an_intermediary_signs_with_its_own_certificate(portal: Portal) -> None:
    signing = of_certificate(make_certificate(INTERMEDIARY))
    assert await findings(portal, sign(await unsigned(portal), signing)) == []
    other = of_certificate(make_certificate({**INTERMEDIARY, "number": NUMBER}))
    assert await findings(portal, sign(await unsigned(portal, "S-2"), other)) == ["DS312"]


async def test_a_certificate_of_an_unrelated_taxpayer_is_invalid(portal: Portal) -> None:
    await portal.admin("clients", client_id="own", client_secret="s", tin=SUPPLIER)
    await portal.login(None, "own", "s")
    signing = of_certificate(make_certificate(INTERMEDIARY))
    assert await findings(portal, sign(await unsigned(portal), signing)) == ["DS311", "DS312"]


async def test_a_strict_register_refuses_an_unregistered_signer(portal: Portal) -> None:
    await portal.admin(
        "clients", client_id="new", client_secret="s", tin="C7777777770", intermediary=True
    )
    await portal.login(client_id="new", secret="s")
    signing = of_certificate(make_certificate({**SUBJECT, "tin": "C7777777770"}))
    assert await findings(portal, sign(await unsigned(portal), signing)) == []
    await portal.admin("settings", strict_register=True)
    assert await findings(portal, sign(await unsigned(portal, "S-2"), signing)) == ["DS330"]


def authority_certificate(key: str) -> bytes:
    """Return the certificate of the authority, or of another with its name."""
    name = make_name(**AUTHORITY)
    builder = x509.CertificateBuilder(name, name, rsa_key(key).public_key(), 1)
    builder = builder.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2040, 1, 1))
    return builder.sign(rsa_key(key), SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize("key, codes", [("authority", []), ("another", ["DS329"])])
async def test_a_certificate_needs_a_trusted_authority(
    tmp_path: Path, aiohttp_client: ClientFactory, key: str, codes: list[Any]
) -> None:
    trusted = tmp_path / "authorities.pem"
    trusted.write_bytes(authority_certificate("signer") + authority_certificate(key))
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


def indented(root: dict[str, Any]) -> str:
    return json.dumps(root, indent=2, ensure_ascii=False)


async def test_insignificant_white_space_is_not_signed(portal: Portal) -> None:
    root = sign(
        put(
            await unsigned(portal),
            "InvoiceLine.0.Item.0.Description.0._",
            'Kerusi  "makan"  é — \\ ©',
        )
    )
    assert await sent_as(portal, "S-1", indented(root)) == []


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
    root = await unsigned(portal)
    content = encode_document(root).decode().replace('"_":145,', '"_":145.00,')
    properties = of_certificate(make_certificate()).properties()
    value = base64_of(rsa_key("signer").sign(content.encode(), padding.PKCS1v15(), SHA256()))
    added = signature_of(of_certificate(make_certificate()), properties, content.encode(), value)
    text = content.removesuffix("}]}") + "," + compact(added)[1:] + "]}"
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
