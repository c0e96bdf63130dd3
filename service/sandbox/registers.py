"""Requests about the registers of taxpayers and of document types. Portal: 3, 5.6, 9"""

import base64
import uuid
from decimal import Decimal

from service.documents.codes import BUILT_IN

from .answers import Body, bad_argument, not_found, refusal, unknown_taxpayer
from .controls import Call, instant
from .document import VERSIONS, well_formed_tin
from .queries import read_choice, read_identity
from .settings import Identity

#: What a QR code shows of a taxpayer without a profile.
PROFILE = {
    "sst": "NA",
    "email": "",
    "contactNumber": "",
    "ttx": "NA",
    "businessActivityDescriptionBM": "TIDAK BERKENAAN",
    "businessActivityDescriptionEN": "NOT APPLICABLE",
    "msic": "00000",
    "addressLine0": "NA",
    "addressLine1": "",
    "addressLine2": "",
    "postalZone": "",
    "city": "",
    "state": "14",
    "country": "MYS",
}
#: Validity of a document type and its versions.
SINCE = {"activeFrom": "2024-01-01T00:00:00Z", "activeTo": None}
HOUR = 3600


def validate_tin(call: Call) -> Body:
    """Return 200 if the identity belongs to the TIN. Raises Refusal 404 otherwise."""
    tin = call.path["tin"]
    if not well_formed_tin(tin):
        raise bad_argument("tin", "tin is not valid.")
    kind, value = read_identity(call.query, "idType", "idValue")
    if not kind:
        raise bad_argument("idType", "idType is required.")
    if (kind, value) not in call.sandbox.state.identities(tin):
        raise unknown_taxpayer()
    return {}


def search_tin(call: Call) -> Body:
    """Return the only TIN that meets all criteria. Portal: 3.3"""
    query = call.query
    kind, value = read_identity(query, "idType", "idValue")
    name, file_type = query.get("taxpayerName"), read_choice(query, "fileType", ("1", "2"))
    if not name and not kind:
        raise bad_argument("taxpayerName", "taxpayerName, or idType and idValue, are required.")
    state = call.sandbox.state
    found = [
        tin
        for tin, taxpayer in state.taxpayers.items()
        if (not name or taxpayer.name.lower() == name.lower())
        and (not file_type or tin.startswith("IG") == (file_type == "1"))  # 1: individuals
        and (not kind or (kind, value) in state.identities(tin))
    ]
    if not found:
        raise unknown_taxpayer()
    if len(found) > 1:
        raise refusal(400, "BadRequest", "The search criteria are not conclusive.")
    return {"tin": found[0]}


def get_qr_information(call: Call) -> Body:
    """Return the taxpayer whose QR code has the text in the path, else 404. Portal: 3.4"""
    sandbox, text = call.sandbox, call.path["text"]
    for taxpayer in sandbox.state.taxpayers.values():
        if qr_code_text(taxpayer.tin) == text.lower():
            identity = min(taxpayer.identities, default=Identity("BRN", "NA"))
            return {
                "tin": taxpayer.tin,
                "name": taxpayer.name,
                "idType": identity.type,
                "idNumber": identity.value,
                **PROFILE,
                **taxpayer.profile,
                # Without a zone, as in the published examples.
                "generatedTimestamp": instant(sandbox.now()).removesuffix("Z"),
            }
    raise not_found("taxpayer", text)


def qr_code_text(tin: str) -> str:
    """Return the text of a taxpayer's QR code, a GUID that depends on the TIN alone."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sandbox:taxpayer:{tin}"))


def qr_code(tin: str) -> str:
    """Return the content of a taxpayer's QR code: its text in base64."""
    return base64.b64encode(qr_code_text(tin).encode()).decode()


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
