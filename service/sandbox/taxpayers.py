"""Requests about the taxpayer register: validate, search, and QR code. Portal: 3"""

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from .answers import Refusal, UnknownTaxpayer, answer, bad_argument, not_found
from .clock import instant
from .controls import SANDBOX, Sandbox
from .database import Row, sql
from .document import IDENTITY_SCHEMES, well_formed_tin

#: fileType -> whether it means the TIN of an individual.
FILE_TYPES = {"1": True, "2": False}
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


async def validate_tin(request: web.Request) -> web.Response:
    """Return 200 if the identity belongs to the TIN. Raises UnknownTaxpayer otherwise."""
    tin = request.match_info["tin"]
    if not well_formed_tin(tin):
        raise bad_argument("tin", "tin is not valid.")
    kind, value = read_identity(request.query)
    if not kind:
        raise bad_argument("idType", "idType is required.")
    known = sql.identity_list(request.app[SANDBOX].db, tin=tin)
    if (kind, value) not in {(row["type"], row["value"]) for row in known}:
        raise UnknownTaxpayer()
    return answer({})


async def search_tin(request: web.Request) -> web.Response:
    """Return the only TIN that meets all criteria. Portal: 3.3"""
    kind, value = read_identity(request.query)
    name, file_type = request.query.get("taxpayerName") or None, request.query.get("fileType")
    if not name and not kind:
        raise bad_argument("taxpayerName", "taxpayerName, or idType and idValue, are required.")
    if file_type and file_type not in FILE_TYPES:
        raise bad_argument("fileType", "fileType is 1 or 2.")
    individual = FILE_TYPES.get(file_type) if file_type else None
    found = sql.taxpayer_find(
        request.app[SANDBOX].db, name=name, individual=individual, type=kind, value=value
    )
    if not found:
        raise UnknownTaxpayer()
    if len(found) > 1:
        raise Refusal(400, "BadRequest", "The search criteria are not conclusive.")
    return answer({"tin": found[0]["tin"]})


def read_identity(query: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return (idType, idValue), or (None, None) if both are absent.

    Raises Refusal if only one of them is present.
    """
    kind, value = query.get("idType") or None, query.get("idValue") or None
    if kind and kind not in IDENTITY_SCHEMES:
        raise bad_argument("idType", "idType is not valid.")
    if bool(kind) != bool(value):
        raise bad_argument("idValue" if kind else "idType", "idType and idValue come together.")
    return kind, value


async def get_qr_information(request: web.Request) -> web.Response:
    """Return the taxpayer whose QR code has the text in the path, else 404. Portal: 3.4"""
    sandbox, text = request.app[SANDBOX], request.match_info["text"]
    for row in sql.taxpayer_list(sandbox.db):
        if qr_code_text(row["tin"]) == text.lower():
            return answer(describe_taxpayer(sandbox, row))
    raise not_found("taxpayer", text)


def describe_taxpayer(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    """Return a taxpayer in the published shape. The time has no zone, as in its examples."""
    known = sql.identity_list(sandbox.db, tin=row["tin"])
    kind, value = (known[0]["type"], known[0]["value"]) if known else ("BRN", "NA")
    stored = json.loads(sql.profile_get(sandbox.db, tin=row["tin"]) or "{}")
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
