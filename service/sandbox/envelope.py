"""The body of a submission: its members and what they may be. Portal: 4.1, 4.3"""

from .answers import Refusal, detail
from .document import read_json

MAX_DOCUMENTS = 100
MEMBERS = {"format", "document", "documentHash", "codeNumber"}
#: format of the documents -> content type of the body
FORMATS = {"JSON": "application/json", "XML": "application/xml"}


def read_envelope(body, content_type):
    """The entries of `documents`. Raises Refusal."""
    if content_type == FORMATS["XML"]:
        raise not_implemented()
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
        raise Refusal(
            400,
            "MaximumSizeExceeded",
            f"A submission has at most {MAX_DOCUMENTS} documents.",
            "documents",
        )
    if not documents:
        raise bad_structure("A submission has at least one document.", "documents")
    for index, each in enumerate(documents):
        check_entry(each, f"documents[{index}]")
    return documents


def check_entry(each, target):
    if (
        not isinstance(each, dict)
        or set(each) != MEMBERS
        or not all(isinstance(text, str) for text in each.values())
    ):
        raise bad_structure(
            f"A document has the members {', '.join(sorted(MEMBERS))}, all text.", target
        )
    if each["format"] not in FORMATS:
        raise bad_structure("The format is JSON or XML.", f"{target}.format")
    if each["format"] == "XML":
        raise bad_structure("The format does not agree with the content type.", f"{target}.format")


def bad_structure(message, target):
    return Refusal(400, "BadStructure", message, target, [detail("BadStructure", message, target)])


def unreadable():
    """As it was seen, without the correlation id, which the header has."""
    entry = detail("submission", "Invalid structured submission.", "submission")
    return Refusal(400, "ValidationError", None, None, [entry])


def not_implemented():
    return Refusal(501, "NotImplemented", "This sandbox reads JSON documents only.")
