"""Names of common units of measurement, for readers of a document.

The codes are those of UN/ECE Recommendations 20 and 21. This list has names for print, and is no
code table: `tables/units.json` is the list of the portal.

Portal: 12
"""

from decimal import Decimal

from service import json_codec
from service.documents.codes import get_names

#: Code -> [name of one unit, name of several units].
COMMON_UNITS: dict[str, list[str]] = json_codec.load_data(__file__)


def get_unit_name(code: str, count: Decimal | int) -> str:
    """Return the name of a unit for a count, or its code if the name is not known."""
    if code in COMMON_UNITS:
        one, several = COMMON_UNITS[code]
        return one if count == 1 else several
    return get_names("units").get(code, code)
