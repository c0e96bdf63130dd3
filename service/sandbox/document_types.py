"""Requests about the document types and their versions. Portal: 5.6, 9"""

from decimal import Decimal

from service.documents.codes import BUILT_IN

from .answers import Body, not_found
from .controls import Call
from .document import VERSIONS

SINCE = {"activeFrom": "2024-01-01T00:00:00Z", "activeTo": None}
HOUR = 3600


def describe_type(number: int, code: str, description: str) -> Body:
    versions = [
        {
            "id": number * 10 + index,
            "name": name,
            "description": f"{description} version {name}",
            **SINCE,
            "versionNumber": Decimal(name),
            "status": "published",
        }
        for index, name in enumerate(sorted(VERSIONS), 1)
    ]
    return {
        "id": number,
        "invoiceTypeCode": int(code),
        "description": description,
        **SINCE,
        "documentTypeVersions": versions,
    }


#: Number in paths -> document type, in the order of the code table.
TYPES = {
    str(number): describe_type(number, code, description)
    for number, (code, description) in enumerate(BUILT_IN["document_types"].codes.items(), 1)
}


def list_types(call: Call) -> Body:
    return {"result": list(TYPES.values())}


def get_type(call: Call) -> Body:
    """Return a document type with its periods in hours."""
    shown, controls = find_type(call), call.sandbox.controls
    seconds = {
        "submissionDuration": controls.age_window_seconds,
        "cancellationDuration": controls.cancel_window_seconds,
        "rejectionDuration": controls.cancel_window_seconds,
    }
    parameters = [
        {"id": shown["id"] * 100 + index, "parameter": name, "value": int(period / HOUR), **SINCE}
        for index, (name, period) in enumerate(seconds.items(), 1)
    ]
    return {**shown, "workflowParameters": parameters}


def get_version(call: Call) -> Body:
    shown, wanted = find_type(call), call.path["version"]
    for each in shown["documentTypeVersions"]:
        if str(each["id"]) == wanted:
            return {"invoiceTypeCode": shown["invoiceTypeCode"], **each}
    raise not_found("document type version", wanted)


def find_type(call: Call) -> Body:
    """Return the document type of the number in the path. Raises Refusal 404."""
    number = call.path["id"]
    if number not in TYPES:
        raise not_found("document type", number)
    return TYPES[number]
