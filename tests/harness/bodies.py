"""Bodies of requests: the examples of the API with changes, and those of `tests/bodies/`.

The latter are bodies that each schema accepts and rejects. A file has groups of bodies. A body is
written as its differences from the base of its group: paths of members and entries with their
values, `"(absent)"` for a member that is left out. The object `{"repeat": "x", "times": 301}` is a
text, or an array, that is repeated.
"""

import itertools
import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from service import json_codec, schema
from tests.harness.paths import ROOT

VALID, INVALID = "valid", "invalid"
#: Codes of documents: each one is new.
CODES = itertools.count(1)
#: The demo company as a party of a document. Spec: Company.
AS_BUYER = {
    "contactNumber": "+60312345678",
    "name": "Kopi Tiga Sdn. Bhd.",
    "partyType": "LOCAL_COMPANY",
    "registrationType": "BRN",
    "registrationNumber": "202001234567",
    "sstRegistrationNumber": "W10-1808-32000059",
    "tin": "C20880050010",
    "address": {
        "addressLine0": "12 Jalan Kiara",
        "cityName": "Kuala Lumpur",
        "country": "MYS",
        "state": "14",
        "postalZone": "50480",
    },
    "email": "accounts@kopitiga.example",
}
#: The fields of a buyer in the form of a receipt's link.
BUYER_FORM = {
    "/name": "Aminah",
    "/type": "LOCAL_INDIVIDUAL",
    "/contactNumber": "+60123456789",
    "/registration/type": "NRIC",
    "/registration/number": "880214145566",
    "/address/line1": "5 Jalan Dahlia",
    "/address/zipCode": "40150",
    "/address/city": "Shah Alam",
    "/address/state": "10",
    "/address/country": "MYS",
}
AS_SUPPLIER = {
    **AS_BUYER,
    "businessActivityDescription": "Restaurants and mobile food service activities",
    "msic": "56101",
    "tourismTaxRegistrationNumber": "NA",
}


def example(name: str) -> Any:
    """Return the first example of the bodies of a schema, for any JSON library."""
    return json.loads(json_codec.encode(next(iter(schema.EXAMPLES[name].values()))))


def now(**ago: float) -> str:
    """Return an instant a few seconds, or the given timedelta, in the past, as clients write it."""
    at = datetime.now(UTC) - timedelta(seconds=5) - timedelta(**ago)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def last_month() -> str:
    """Return an instant in the middle of last month in the business time zone."""
    first = datetime.now(ZoneInfo("Asia/Kuala_Lumpur")).replace(day=1)
    return f"{first - timedelta(days=1):%Y-%m}-15T12:00:00+08:00"


def line(**changes: Any) -> dict[str, Any]:
    """Return a line item, with some members replaced."""
    return {**example("invoice_create")["lineItems"][0], **changes}


def buyer(**changes: Any) -> dict[str, Any]:
    """Return a buyer, with some members replaced."""
    return {**example("invoice_create")["buyer"], **changes}


#: A buyer whose registration number does not match the TIN: the portal finds the document Invalid.
STRANGER = buyer(
    type="LOCAL_COMPANY", tin="C5510387420", registration={"type": "BRN", "number": "199901012345"}
)


def invoice(**changes: Any) -> dict[str, Any]:
    """Return the body of an invoice that becomes Valid, with members replaced; None removes one."""
    body = {**example("invoice_create"), "code": next(CODES), "issueDateTime": now()}
    return {name: value for name, value in {**body, **changes}.items() if value is not None}


def note(**changes: Any) -> dict[str, Any]:
    """Return the body of a credit note, with some members replaced."""
    body = example("adjustment_note_create")
    own = {"adjustmentNoteCode": next(CODES), "adjustmentNoteIssueDate": now()}
    return {**body, **own, **changes}


def load_bodies(side: str, number: type[Decimal | float] = Decimal) -> dict[str, dict[str, Any]]:
    """Return {schema: {name: body}} of the valid or invalid bodies, fractions as `number`."""
    bodies: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "tests" / "bodies").glob(f"*.{side}.json")):
        groups = json.loads(path.read_bytes(), parse_float=number, object_pairs_hook=_make_object)
        members = [
            (name, _apply(differences, deepcopy(group["base"])))
            for group in groups
            for name, differences in group["bodies"].items()
        ]
        bodies[path.name.partition(".")[0]] = _make_object(members)
    return bodies


def _make_object(members: list[tuple[str, Any]]) -> Any:
    """Return an object whose names are unique, or what it repeats."""
    made, names = dict(members), [name for name, _ in members]
    assert len(made) == len(names), f"twice: {[name for name in made if names.count(name) > 1]}"
    return made["repeat"] * made["times"] if made.keys() == {"repeat", "times"} else made


def _apply(differences: dict[str, Any], body: Any) -> Any:
    """Return a body with its differences from the base."""
    for path, value in differences.items():
        *steps, name = path.split("/")
        holder = body
        for step in steps:
            holder = holder[int(step) if isinstance(holder, list) else step]
        if value == "(absent)":
            del holder[name]
        else:
            holder[name] = value
    return body
