"""The TIN register as clients see it: validate and search. Portal: 3"""

from .answers import Refusal, UnknownTaxpayer, answer, bad_argument
from .controls import SANDBOX
from .database import sql
from .document import IDENTITY_SCHEMES, well_formed_tin

#: fileType -> whether the TIN is an individual's
FILE_TYPES = {"1": True, "2": False}


async def validate_tin(request):
    """200 when the TIN has the identity. Raises UnknownTaxpayer when it has not."""
    tin = request.match_info["tin"]
    if not well_formed_tin(tin):
        raise bad_argument("tin", "tin is not valid.")
    kind, value = identity(request.query)
    if not kind:
        raise bad_argument("idType", "idType is required.")
    known = sql.identity_list(request.app[SANDBOX].db, tin=tin)
    if (kind, value) not in {(row["type"], row["value"]) for row in known}:
        raise UnknownTaxpayer()
    return answer({})


async def search_tin(request):
    """The one TIN that meets all criteria. Portal: 3.3"""
    kind, value = identity(request.query)
    name, file_type = request.query.get("taxpayerName") or None, request.query.get("fileType")
    if not name and not kind:
        raise bad_argument("taxpayerName", "taxpayerName, or idType and idValue, are required.")
    if file_type and file_type not in FILE_TYPES:
        raise bad_argument("fileType", "fileType is 1 or 2.")
    individual = FILE_TYPES.get(file_type)
    found = sql.taxpayer_find(
        request.app[SANDBOX].db, name=name, individual=individual, type=kind, value=value
    )
    if not found:
        raise UnknownTaxpayer()
    if len(found) > 1:
        raise Refusal(400, "BadRequest", "The search criteria are not conclusive.")
    return answer({"tin": found[0]["tin"]})


def identity(query):
    """(idType, idValue), or (None, None) when both are absent. Raises Refusal for half a pair."""
    kind, value = query.get("idType") or None, query.get("idValue") or None
    if kind and kind not in IDENTITY_SCHEMES:
        raise bad_argument("idType", "idType is not valid.")
    if bool(kind) != bool(value):
        raise bad_argument("idValue" if kind else "idType", "idType and idValue come together.")
    return kind, value
