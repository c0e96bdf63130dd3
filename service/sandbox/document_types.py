"""Requests about the document types and their versions. Portal: 5.6, 9"""

from decimal import Decimal
from typing import Any

from aiohttp import web

from service.documents.codes import BUILT_IN

from .answers import answer, not_found
from .controls import SANDBOX, Controls
from .document import VERSIONS

SINCE = {"activeFrom": "2024-01-01T00:00:00Z", "activeTo": None}
HOUR = 3600


async def list_types(request: web.Request) -> web.Response:
    """Return all document types."""
    numbers = range(1, len(BUILT_IN["document_types"].codes) + 1)
    return answer({"result": [describe_type(number) for number in numbers]})


async def get_type(request: web.Request) -> web.Response:
    """Return a document type with its periods in hours."""
    number = read_type_number(request)
    parameters = workflow_parameters(number, request.app[SANDBOX].controls)
    return answer({**describe_type(number), "workflowParameters": parameters})


async def get_version(request: web.Request) -> web.Response:
    """Return one version of a document type."""
    shown, wanted = describe_type(read_type_number(request)), request.match_info["version"]
    for each in shown["documentTypeVersions"]:
        if str(each["id"]) == wanted:
            return answer({"invoiceTypeCode": shown["invoiceTypeCode"], **each})
    raise not_found("document type version", wanted)


def read_type_number(request: web.Request) -> int:
    """Return the number of the document type in the path. Raises Refusal 404."""
    text = request.match_info["id"]
    if text not in {str(number + 1) for number in range(len(BUILT_IN["document_types"].codes))}:
        raise not_found("document type", text)
    return int(text)


def describe_type(number: int) -> dict[str, Any]:
    """Return a document type; numbers start at 1 in the order of the code table."""
    code, description = list(BUILT_IN["document_types"].codes.items())[number - 1]
    versions = [describe_version(number, description, name) for name in sorted(VERSIONS)]
    return {
        "id": number,
        "invoiceTypeCode": int(code),
        "description": description,
        **SINCE,
        "documentTypeVersions": versions,
    }


def describe_version(number: int, description: str, name: str) -> dict[str, Any]:
    """Return a version of a document type."""
    return {
        "id": number * 10 + int(name[-1]) + 1,
        "name": name,
        "description": f"{description} version {name}",
        **SINCE,
        "versionNumber": Decimal(name),
        "status": "published",
    }


def workflow_parameters(number: int, controls: Controls) -> list[dict[str, Any]]:
    """Return the periods of a document type in hours."""
    hours = {
        "submissionDuration": controls.age_window_seconds / HOUR,
        "cancellationDuration": controls.cancel_window_seconds / HOUR,
        "rejectionDuration": controls.cancel_window_seconds / HOUR,
    }
    return [
        {"id": number * 100 + index, "parameter": name, "value": int(value), **SINCE}
        for index, (name, value) in enumerate(hours.items(), 1)
    ]
