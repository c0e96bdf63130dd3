"""The enveloped signature of a document of version 1.1, as JSON. Pure functions. Portal: 11

What is signed is the document without the two members that carry the signature, minified by `document.encode`. The
verifier takes the members out and minifies again: whatever is hashed here has to come from that one serialiser.
"""

import base64
import hashlib
from datetime import UTC

from service.documents.ubl.document import encode, value

SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
ENVELOPED = "urn:oasis:names:specification:ubl:dsig:enveloped:xades"
SIGNATURE_ID = "urn:oasis:names:specification:ubl:signature:Invoice"
INFORMATION_ID = "urn:oasis:names:specification:ubl:signature:1"
PROPERTIES_TYPE = "http://uri.etsi.org/01903/v1.3.2#SignedProperties"
TARGET, PROPERTIES_ID = "signature", "id-xades-signed-props"

#: The members that carry the signature, after all others. Portal: 11.5
CARRIERS = ("UBLExtensions", "Signature")
END = b"}]}"  # of the invoice, of the array that it is in, and of the document


def sign(document, signer, signed_at):
    """The bytes of the signed document. An earlier signature is replaced. Portal: 11.3

    `document` is what `document.build` gives for version 1.1. `signer` has a `certificate` and `sign(content)`, see
    certificate.py. `signed_at` is an instant within the certificate's validity.
    """
    content = encode(unsigned(document))
    return assemble(content, signer.certificate, signer.sign(content), signed_at)


def unsigned(document):
    """The document without the members that carry a signature. Raises ValueError unless one invoice is its end."""
    *_, (last, (invoice,)) = document.items()
    if last != "Invoice":
        raise ValueError(f"A document ends with its invoice, not with {last}.")
    return {
        **document,
        "Invoice": [{name: member for name, member in invoice.items() if name not in CARRIERS}],
    }


def assemble(content, certificate, signature_value, signed_at):
    """The bytes of a document with its signature: `content` are those of the unsigned one, `signature_value` bytes.

    They are put into its end, where encoding the whole would give them again: a long document takes long to encode.
    """
    properties = qualifying_properties(certificate, signed_at)
    information = {
        "ID": value(INFORMATION_ID),
        "ReferencedSignatureID": value(SIGNATURE_ID),
        "Signature": [_signature(certificate, properties, digest(content), signature_value)],
    }
    signatures = [{"UBLDocumentSignatures": [{"SignatureInformation": [information]}]}]
    extension = {"ExtensionURI": value(ENVELOPED), "ExtensionContent": signatures}
    carriers = {
        "UBLExtensions": [{"UBLExtension": [extension]}],
        "Signature": [{"ID": value(SIGNATURE_ID), "SignatureMethod": value(ENVELOPED)}],
    }
    return content.removesuffix(END) + b"," + encode(carriers)[1:-1] + END


def qualifying_properties(certificate, signed_at):
    """When and with which certificate it was signed. The order of the members is hashed with them. Portal: 11.4"""
    at = signed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {
        "CertDigest": [
            {
                "DigestMethod": value("", Algorithm=SHA256),
                "DigestValue": value(digest(certificate.der)),
            }
        ],
        "IssuerSerial": [_issuer_serial(certificate)],
    }
    signed = {"SigningTime": value(at), "SigningCertificate": [{"Cert": [named]}]}
    return {
        "Target": TARGET,
        "SignedProperties": [{"Id": PROPERTIES_ID, "SignedSignatureProperties": [signed]}],
    }


def digest(content):
    """SHA-256 in base64. Portal: 11.2"""
    return base64.b64encode(hashlib.sha256(content).digest()).decode("ascii")


def _signature(certificate, properties, document_digest, signature_value):
    return {
        "Id": TARGET,
        "Object": [{"QualifyingProperties": [properties]}],
        "KeyInfo": [{"X509Data": [_key_info(certificate)]}],
        "SignatureValue": value(base64.b64encode(signature_value).decode("ascii")),
        "SignedInfo": [
            {
                "SignatureMethod": value("", Algorithm=RSA_SHA256),
                "Reference": [
                    _reference(PROPERTIES_TYPE, f"#{PROPERTIES_ID}", digest(encode(properties))),
                    _reference("", "", document_digest),
                ],
            }
        ],
    }


def _reference(kind, uri, digest_value):
    return {
        "Type": kind,
        "URI": uri,
        "DigestMethod": value("", Algorithm=SHA256),
        "DigestValue": value(digest_value),
    }


def _key_info(certificate):
    return {
        "X509Certificate": value(base64.b64encode(certificate.der).decode("ascii")),
        "X509SubjectName": value(certificate.subject),
        "X509IssuerSerial": [_issuer_serial(certificate)],
    }


def _issuer_serial(certificate):
    return {
        "X509IssuerName": value(certificate.issuer),
        "X509SerialNumber": value(str(certificate.serial)),
    }
