"""Requests about the taxpayer register: validate, search, and QR code. Portal: 3"""

import base64
import uuid

from .answers import Body, bad_argument, not_found, refusal, unknown_taxpayer
from .controls import Call, instant
from .document import well_formed_tin
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
