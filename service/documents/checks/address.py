"""The portal's rules for addresses of all parties. Portal: 10.4, 12.2, 14.4"""

import re

from service.documents.checks import dates
from service.documents.checks.rule import (
    FORMAT,
    Place,
    Rule,
    coded,
    is_public,
    keep_only,
    malformed,
)
from service.documents.ubl import parties
from service.documents.ubl.elements import get_object

POSTCODE = re.compile(r"[0-9]{1,5}")
#: Code of a postcode that the portal accepts, although no postcode in Malaysia is so short.
SHORT_POSTCODE = "Postcode"


def _is_home(place: Place) -> bool:
    return not parties.is_abroad(get_object(place.given, "address"))


ADDRESS_RULES = (
    *coded("countries", "/address/country"),
    *coded("states", "/address/state", applies=_is_home),
    Rule(
        "CV317",
        "/address/state",
        lambda place: (
            _is_home(place)
            and place.sent_text("/address/state") == parties.STATE_ABROAD
            and not is_public(place)
            and not place.case.is_consolidated
        ),
        "The state of the {who} must not be 17, which is reserved for addresses outside Malaysia "
        "and for consolidated documents.",
        dates.STATES_STRICT,
    ),
    Rule(
        FORMAT,
        "/address/zipCode",
        malformed("/address/zipCode", POSTCODE, _is_home),
        "The postcode of the {who} must have at most 5 digits.",
        dates.FORMATS_STRICT,
        fix=keep_only("0-9", "/address/zipCode", POSTCODE),
    ),
    Rule(
        SHORT_POSTCODE,
        "/address/zipCode",
        lambda place: (
            _is_home(place) and re.fullmatch("[0-9]{1,4}", place.sent_text("/address/zipCode"))
        ),
        "The postcode of the {who} has fewer than the 5 digits of a postcode in Malaysia.",
        is_warning=True,
    ),
)
