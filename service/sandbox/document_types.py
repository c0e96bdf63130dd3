"""The document types and their versions. Portal: 5.6, 9"""

from decimal import Decimal

from service.documents.codes import TABLES

from .answers import answer, not_found
from .controls import SANDBOX
from .document import VERSIONS

SINCE = {"activeFrom": "2024-01-01T00:00:00Z", "activeTo": None}
HOUR = 3600


async def list_types(request):
    return answer(
        {"result": [described(number) for number in range(1, len(TABLES["document_types"]) + 1)]}
    )


async def get_type(request):
    """With the windows of the type, in hours."""
    number = read_number(request.match_info["id"], len(TABLES["document_types"]), "document type")
    return answer(
        {
            **described(number),
            "workflowParameters": parameters(number, request.app[SANDBOX].controls),
        }
    )


async def get_version(request):
    number = read_number(request.match_info["id"], len(TABLES["document_types"]), "document type")
    shown, wanted = described(number), request.match_info["version"]
    for each in shown["documentTypeVersions"]:
        if str(each["id"]) == wanted:
            return answer({"invoiceTypeCode": shown["invoiceTypeCode"], **each})
    raise not_found("document type version", wanted)


def read_number(text, most, what):
    if text not in {str(number) for number in range(1, most + 1)}:
        raise not_found(what, text)
    return int(text)


def described(number):
    code, description = list(TABLES["document_types"].items())[number - 1]
    return {
        "id": number,
        "invoiceTypeCode": int(code),
        "description": description,
        **SINCE,
        "documentTypeVersions": [version(number, description, name) for name in sorted(VERSIONS)],
    }


def version(number, description, name):
    return {
        "id": number * 10 + int(name[-1]) + 1,
        "name": name,
        "description": f"{description} version {name}",
        **SINCE,
        "versionNumber": Decimal(name),
        "status": "published",
    }


def parameters(number, controls):
    hours = {
        "submissionDuration": controls.age_window_seconds / HOUR,
        "cancellationDuration": controls.cancel_window_seconds / HOUR,
        "rejectionDuration": controls.cancel_window_seconds / HOUR,
    }
    return [
        {"id": number * 100 + index, "parameter": name, "value": int(value), **SINCE}
        for index, (name, value) in enumerate(hours.items(), 1)
    ]
