"""Names of common units of measurement, for readers of a document.

The codes are those of UN/ECE Recommendations 20 and 21. This list has names for print, and is no
code table: `tables/units.json` is the list of the portal.

Portal: 12
"""

from decimal import Decimal

from service.documents.codes import get_names

#: Code -> (name of one unit, name of several units).
COMMON_UNITS = {
    # Pieces and packages
    "C62": ("unit", "units"),
    "H87": ("piece", "pieces"),
    "EA": ("each", "each"),
    "XPP": ("piece", "pieces"),
    "XUN": ("unit", "units"),
    "SET": ("set", "sets"),
    "PR": ("pair", "pairs"),
    "DZN": ("dozen", "dozen"),
    "XBX": ("box", "boxes"),
    "XCT": ("carton", "cartons"),
    "XBG": ("bag", "bags"),
    "XPK": ("pack", "packs"),
    "XBO": ("bottle", "bottles"),
    "XCA": ("can", "cans"),
    "XCS": ("case", "cases"),
    "XPX": ("pallet", "pallets"),
    "XRO": ("roll", "rolls"),
    "XST": ("sheet", "sheets"),
    # Mass and volume
    "MGM": ("mg", "mg"),
    "GRM": ("g", "g"),
    "KGM": ("kg", "kg"),
    "TNE": ("t", "t"),
    "LBR": ("lb", "lb"),
    "ONZ": ("oz", "oz"),
    "MLT": ("mL", "mL"),
    "LTR": ("L", "L"),
    # Length, area and space
    "MMT": ("mm", "mm"),
    "CMT": ("cm", "cm"),
    "MTR": ("m", "m"),
    "KMT": ("km", "km"),
    "INH": ("inch", "inches"),
    "FOT": ("foot", "feet"),
    "CMK": ("cm²", "cm²"),
    "MTK": ("m²", "m²"),
    "FTK": ("sq ft", "sq ft"),
    "HAR": ("ha", "ha"),
    "MTQ": ("m³", "m³"),
    # Time and services
    "MIN": ("minute", "minutes"),
    "HUR": ("hour", "hours"),
    "DAY": ("day", "days"),
    "WEE": ("week", "weeks"),
    "MON": ("month", "months"),
    "ANN": ("year", "years"),
    "E48": ("service unit", "service units"),
    # Energy
    "KWT": ("kW", "kW"),
    "KWH": ("kWh", "kWh"),
}


def get_unit_name(code: str, count: Decimal | int) -> str:
    """Return the name of a unit for a count, or its code if the name is not known."""
    if code in COMMON_UNITS:
        one, several = COMMON_UNITS[code]
        return one if count == 1 else several
    return get_names("units").get(code, code)
