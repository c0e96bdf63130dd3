"""The enveloped signature of a document of version 1.1, as JSON. Portal: 11

The signed content is the document without the two members that carry the signature, minified by
`document.encode`. The verifier removes these members and minifies the rest again, so everything
that is hashed here must come from that serialiser.
"""

import base64
import hashlib
from datetime import UTC, datetime

from service.documents.signing import private_key
from service.documents.signing.certificate import Certificate, Signer
from service.documents.ubl.document import encode
from service.documents.ubl.elements import value
from service.json_types import JsonObject

SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
ENVELOPED = "urn:oasis:names:specification:ubl:dsig:enveloped:xades"
SIGNATURE_ID = "urn:oasis:names:specification:ubl:signature:Invoice"
INFORMATION_ID = "urn:oasis:names:specification:ubl:signature:1"
PROPERTIES_TYPE = "http://uri.etsi.org/01903/v1.3.2#SignedProperties"
TARGET, PROPERTIES_ID = "signature", "id-xades-signed-props"

#: The members that carry the signature; they follow all others. Portal: 11.5
CARRIERS = ("UBLExtensions", "Signature")
END = b"}]}"  # closes the invoice, its array and the document


def sign(document: JsonObject, signer: Signer, signed_at: datetime) -> bytes:
    """Return the bytes of the signed document; an existing signature is replaced. Portal: 11.3

    `document` is the result of `document.build` for version 1.1. `signed_at` is within the validity
    of the signer's certificate.
    """
    content = encode(remove_signature(document))
    return insert_signature(
        content, signer.certificate, private_key.sign(signer.key, content), signed_at
    )


def remove_signature(document: JsonObject) -> JsonObject:
    """Return the document without the members that carry a signature.

    Raises ValueError unless it ends with exactly one invoice.
    """
    *_, (last, (invoice,)) = document.items()
    if last != "Invoice":
        raise ValueError(f"A document must end with its invoice, not with {last}.")
    return {
        **document,
        "Invoice": [{name: member for name, member in invoice.items() if name not in CARRIERS}],
    }


def insert_signature(
    content: bytes, certificate: Certificate, signature_value: bytes, signed_at: datetime
) -> bytes:
    """Insert a signature into the bytes of an unsigned document, and return the result.

    The bytes are the same as those of encoding the whole document again, which takes long for a
    large document.
    """
    properties = build_qualifying_properties(certificate, signed_at)
    information = {
        "ID": value(INFORMATION_ID),
        "ReferencedSignatureID": value(SIGNATURE_ID),
        "Signature": [
            _build_signature(certificate, properties, compute_digest(content), signature_value)
        ],
    }
    signatures = [{"UBLDocumentSignatures": [{"SignatureInformation": [information]}]}]
    extension = {"ExtensionURI": value(ENVELOPED), "ExtensionContent": signatures}
    carriers = {
        "UBLExtensions": [{"UBLExtension": [extension]}],
        "Signature": [{"ID": value(SIGNATURE_ID), "SignatureMethod": value(ENVELOPED)}],
    }
    return content.removesuffix(END) + b"," + encode(carriers)[1:-1] + END


def build_qualifying_properties(certificate: Certificate, signed_at: datetime) -> JsonObject:
    """Build the signing time and certificate. The members are hashed in this order. Portal: 11.4"""
    at = signed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {
        "CertDigest": [_build_digest(compute_digest(certificate.der))],
        "IssuerSerial": [_build_issuer_serial(certificate)],
    }
    signed = {"SigningTime": value(at), "SigningCertificate": [{"Cert": [named]}]}
    return {
        "Target": TARGET,
        "SignedProperties": [{"Id": PROPERTIES_ID, "SignedSignatureProperties": [signed]}],
    }


def compute_digest(content: bytes) -> str:
    """Return the SHA-256 of the content in base64. Portal: 11.2"""
    return base64.b64encode(hashlib.sha256(content).digest()).decode("ascii")


def _build_signature(
    certificate: Certificate,
    properties: JsonObject,
    document_digest: str,
    signature_value: bytes,
) -> JsonObject:
    key_info = {
        "X509Certificate": value(base64.b64encode(certificate.der).decode("ascii")),
        "X509SubjectName": value(certificate.subject),
        "X509IssuerSerial": [_build_issuer_serial(certificate)],
    }
    return {
        "Id": TARGET,
        "Object": [{"QualifyingProperties": [properties]}],
        "KeyInfo": [{"X509Data": [key_info]}],
        "SignatureValue": value(base64.b64encode(signature_value).decode("ascii")),
        "SignedInfo": [
            {
                "SignatureMethod": value("", Algorithm=RSA_SHA256),
                "Reference": [
                    _build_reference(
                        PROPERTIES_TYPE, f"#{PROPERTIES_ID}", compute_digest(encode(properties))
                    ),
                    _build_reference("", "", document_digest),
                ],
            }
        ],
    }


def _build_reference(kind: str, uri: str, digest_value: str) -> JsonObject:
    return {"Type": kind, "URI": uri, **_build_digest(digest_value)}


def _build_digest(digest_value: str) -> JsonObject:
    return {"DigestMethod": value("", Algorithm=SHA256), "DigestValue": value(digest_value)}


def _build_issuer_serial(certificate: Certificate) -> JsonObject:
    return {
        "X509IssuerName": value(certificate.issuer),
        "X509SerialNumber": value(str(certificate.serial)),
    }
