"""Parsing of the body of a submission. Portal: 4.1, 4.3"""

from typing import Annotated

import msgspec

from .answers import Refusal, detail, refusal, refusal_with_detail

MAX_DOCUMENTS = 100
XML_TYPES = ("application/xml", "text/xml")


class Entry(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One document of a submission: base64 of its bytes, their SHA-256, and its number."""

    format: str
    document: str
    document_hash: str
    code_number: str


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a submission."""

    documents: Annotated[list[Entry], msgspec.Meta(min_length=1)]


def read_envelope(body: bytes, content_type: str) -> list[Entry]:
    """Return the documents, with their format in upper case. Raises Refusal."""
    if content_type in XML_TYPES:
        raise not_implemented(
            "The sandbox reads submissions in JSON only. XML documents are accepted in a JSON "
            "submission with the format XML.",
            "submission",
        )
    try:
        documents = msgspec.json.decode(body, type=Envelope).documents
    except msgspec.ValidationError as error:
        raise bad_structure(str(error), "documents") from None
    except ValueError:
        entry = detail("submission", "Invalid structured submission.", "submission")
        raise refusal(400, "ValidationError", None, None, [entry]) from None
    if len(documents) > MAX_DOCUMENTS:
        raise too_large(f"A submission has at most {MAX_DOCUMENTS} documents.")
    for index, entry in enumerate(documents):
        entry.format = entry.format.upper()
        if entry.format not in ("JSON", "XML"):
            raise bad_structure("The format is JSON or XML.", f"documents[{index}].format")
    if len({entry.format for entry in documents}) > 1:
        raise bad_structure("All documents of a submission have one format.", "documents")
    return documents


def bad_structure(message: str, target: str) -> Refusal:
    """Return the refusal of a body with wrong members."""
    return refusal_with_detail(400, "BadStructure", message, target)


def too_large(message: str) -> Refusal:
    """Return the refusal of a submission or document that exceeds a limit."""
    return refusal_with_detail(400, "MaximumSizeExceeded", message, "documents")


def not_implemented(message: str, target: str) -> Refusal:
    """Return the refusal of a request that the portal could process and the sandbox cannot."""
    return refusal_with_detail(501, "NotImplemented", message, target)
