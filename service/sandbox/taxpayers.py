"""Requests about the taxpayer register: validate, search, and QR code. Portal: 3"""

import base64
import json
import uuid

from .answers import Body, bad_argument, not_found, refusal, unknown_taxpayer
from .clock import instant
from .controls import Call, Sandbox
from .database import Row
from .document import well_formed_tin
from .queries import read_choice, read_identity

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


def validate_tin(call: Call) -> Body:
    """Return 200 if the identity belongs to the TIN. Raises Refusal 404 otherwise."""
    tin = call.path["tin"]
    if not well_formed_tin(tin):
        raise bad_argument("tin", "tin is not valid.")
    kind, value = read_identity(call.query, "idType", "idValue")
    if not kind:
        raise bad_argument("idType", "idType is required.")
    if (kind, value) not in map(tuple, call.sandbox.db.identity_list(tin=tin)):
        raise unknown_taxpayer()
    return {}


def search_tin(call: Call) -> Body:
    """Return the only TIN that meets all criteria. Portal: 3.3"""
    query = call.query
    kind, value = read_identity(query, "idType", "idValue")
    name, file_type = query.get("taxpayerName"), read_choice(query, "fileType", ("1", "2"))
    if not name and not kind:
        raise bad_argument("taxpayerName", "taxpayerName, or idType and idValue, are required.")
    found = call.sandbox.db.taxpayer_find(name=name, file_type=file_type, type=kind, value=value)
    if not found:
        raise unknown_taxpayer()
    if len(found) > 1:
        raise refusal(400, "BadRequest", "The search criteria are not conclusive.")
    return {"tin": found[0]["tin"]}


def get_qr_information(call: Call) -> Body:
    """Return the taxpayer whose QR code has the text in the path, else 404. Portal: 3.4"""
    sandbox, text = call.sandbox, call.path["text"]
    for row in sandbox.db.taxpayer_list():
        if qr_code_text(row["tin"]) == text.lower():
            return describe_taxpayer(sandbox, row)
    raise not_found("taxpayer", text)


def describe_taxpayer(sandbox: Sandbox, row: Row) -> Body:
    """Return a taxpayer in the published shape. The time has no zone, as in its examples."""
    known = sandbox.db.identity_list(tin=row["tin"])
    kind, value = known[0] if known else ("BRN", "NA")
    stored = json.loads(sandbox.db.profile_get(tin=row["tin"]) or "{}")
    return {
        "tin": row["tin"],
        "name": row["name"],
        "idType": kind,
        "idNumber": value,
        **PROFILE,
        **stored,
        "generatedTimestamp": instant(sandbox.now()).removesuffix("Z"),
    }


def qr_code_text(tin: str) -> str:
    """Return the text of a taxpayer's QR code, a GUID that depends on the TIN alone."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sandbox:taxpayer:{tin}"))


def qr_code(tin: str) -> str:
    """Return the content of a taxpayer's QR code: its text in base64."""
    return base64.b64encode(qr_code_text(tin).encode()).decode()
