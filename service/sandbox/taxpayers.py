"""Requests about the taxpayer register: validate and search. Portal: 3"""

from collections.abc import Mapping

from aiohttp import web

from .answers import Refusal, UnknownTaxpayer, answer, bad_argument
from .controls import SANDBOX
from .database import sql
from .document import IDENTITY_SCHEMES, well_formed_tin

#: fileType -> whether it means the TIN of an individual.
FILE_TYPES = {"1": True, "2": False}


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
