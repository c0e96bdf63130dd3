"""Parsing of the body of a submission. Portal: 4.1, 4.3"""

from typing import Any

from .answers import Refusal, detail, refusal, refusal_with_detail
from .document import read_json

MAX_DOCUMENTS = 100
MEMBERS = {"format", "document", "documentHash", "codeNumber"}
FORMATS = ("JSON", "XML")
XML_TYPES = ("application/xml", "text/xml")

EnvelopeEntry = dict[str, str]


def read_envelope(body: bytes, content_type: str) -> list[EnvelopeEntry]:
    """Return the entries of `documents`. Raises Refusal."""
    if content_type in XML_TYPES:
        raise not_implemented(
            "The sandbox reads submissions in JSON only. XML documents are accepted in a JSON "
            "submission with the format XML.",
            "submission",
        )
    try:
        envelope = read_json(body)
    except ValueError:
        raise unreadable() from None
    if (
        not isinstance(envelope, dict)
        or set(envelope) != {"documents"}
        or not isinstance(envelope["documents"], list)
    ):
        raise bad_structure("A submission has the one member documents, an array.", "documents")
    documents = envelope["documents"]
    if len(documents) > MAX_DOCUMENTS:
        message = f"A submission has at most {MAX_DOCUMENTS} documents."
        raise refusal(400, "MaximumSizeExceeded", message, "documents")
    if not documents:
        raise bad_structure("A submission has at least one document.", "documents")
    entries = [read_entry(entry, f"documents[{index}]") for index, entry in enumerate(documents)]
    if len({entry["format"] for entry in entries}) > 1:
        raise bad_structure("All documents of a submission have one format.", "documents")
    return entries


def read_entry(entry: Any, target: str) -> EnvelopeEntry:
    """Return one entry, with its format in upper case. Raises Refusal."""
    if (
        not isinstance(entry, dict)
        or set(entry) != MEMBERS
        or not all(isinstance(text, str) for text in entry.values())
    ):
        raise bad_structure(
            f"A document has the members {', '.join(sorted(MEMBERS))}, all text.", target
        )
    document_format = entry["format"].upper()
    if document_format not in FORMATS:
        raise bad_structure("The format is JSON or XML.", f"{target}.format")
    return {**entry, "format": document_format}


def bad_structure(message: str, target: str) -> Refusal:
    """Return the refusal of a body with wrong members."""
    return refusal_with_detail(400, "BadStructure", message, target)


def unreadable() -> Refusal:
    """Return the portal's refusal of a body that is not JSON."""
    entry = detail("submission", "Invalid structured submission.", "submission")
    return refusal(400, "ValidationError", None, None, [entry])


def not_implemented(message: str, target: str) -> Refusal:
    """Return the refusal of a request that the portal could process and the sandbox cannot."""
    return refusal_with_detail(501, "NotImplemented", message, target)
