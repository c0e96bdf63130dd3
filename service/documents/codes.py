"""The portal's code tables: which codes exist, and which one was probably meant.

The small tables ship as `tables/<name>.json` with the day from which they hold (`since`). The two long ones,
units and MSIC, belong to others and change often: until `load` brings them they are checked by form only.
Portal: 12
"""

import json
import re
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path
from textwrap import shorten

from service.errors import violation

#: table -> {code: description}; `load` replaces or adds one.
TABLES: dict[str, dict[str, str]] = {
    path.stem: json.loads(path.read_text("utf-8"))["codes"]
    for path in sorted(Path(__file__).with_name("tables").glob("*.json"))
}

#: table -> the form of its codes, as a pattern and in words: all we know of a table that was not
#: loaded.
FORMS = {
    "units": (re.compile("[A-Z0-9]{1,3}"), "1 to 3 of A-Z and 0-9"),
    "msic": (re.compile("[0-9]{5}"), "5 digits"),
}

#: table -> {code: the day from which it holds}, of codes that a newer list has brought. Portal:
#: 14.5
SINCE: dict[str, dict[str, date]] = {}

#: table -> {what people write: the code they mean}, where likeness of letters would name another
#: one.
SPOKEN = {
    "countries": {"uk": "GBR", "cn": "CHN", "united states": "USA"},
    "currencies": {"rm": "MYR", "ringgit": "MYR", "rmb": "CNY"},
    "states": {"penang": "07", "malacca": "04", "kl": "14"},
    "units": {
        "pc": "H87",
        "pcs": "H87",
        "kg": "KGM",
        "g": "GRM",
        "l": "LTR",
        "m": "MTR",
        "hr": "HUR",
    },
}

#: places of codes in a body -> their table; `*` stands for every entry of an array.
PARTY = (
    ("/type", "party_types"),
    ("/registration/type", "registration_types"),
    ("/msic", "msic"),
    ("/address/state", "states"),
    ("/address/country", "countries"),
)
DOCUMENT = (
    ("/currencyCode", "currencies"),
    *(("/buyer" + place, table) for place, table in PARTY),
    *(("/supplier" + place, table) for place, table in PARTY),
    ("/delivery/registration/type", "registration_types"),
    ("/delivery/address/state", "states"),
    ("/delivery/address/country", "countries"),
    ("/payment/mode", "payment_modes"),
    ("/lineItems/*/classifications/*", "classifications"),
    ("/lineItems/*/unit/code", "units"),
    ("/lineItems/*/taxDetails/*/taxType", "tax_types"),
    ("/lineItems/*/originCountry", "countries"),
)
COMPANY = (
    ("/registration_type", "registration_types"),
    ("/msic_code", "msic"),
    ("/state", "states"),
    ("/country", "countries"),
)

HOME = "MYS"

#: An answer lists at most so many faults, and looking for a nearest code is the costly part of one.
MOST_FAULTS = 50

#: Codes and what people write for them are short; longer text is quoted cut and likened to nothing.
LONGEST = 60


def load(table, codes, since=None):
    """Make `codes`, {code: description}, the whole of `table`, in place of a shipped table or of a form.

    `since` is {code: the day from which it holds}. The codes of the earliest day were there before we knew the list.
    """
    if table not in TABLES and table not in FORMS:
        raise KeyError(table)
    TABLES[table] = dict(codes)
    first = min(since.values()) if since else None
    SINCE[table] = {code: day for code, day in (since or {}).items() if day > first}
    _nearest.cache_clear()


def is_known(table, code):
    """Whether the table has exactly this code, as the portal compares them: case and leading zeros count."""
    if table in TABLES:
        return code in TABLES[table]
    pattern, _ = FORMS[table]
    return pattern.fullmatch(code) is not None


def begins(table, code):
    """The day from which a known code holds, None where it always did, for all that we know."""
    return SINCE.get(table, {}).get(code)


def nearest(table, code):
    """The known code that `code` most likely stands for, by likeness to codes and to descriptions, or None."""
    wanted = code.strip().casefold()
    if not wanted or len(wanted) > LONGEST:
        return None
    meant = SPOKEN.get(table, {}).get(wanted)
    return meant if meant and is_known(table, meant) else _nearest(table, wanted)


@lru_cache(maxsize=1024)
def _nearest(table, wanted):
    codes = TABLES.get(table, {})
    by_code = {code.casefold(): code for code in codes}
    by_text = {}
    for code, text in codes.items():
        by_text.setdefault(text.casefold(), code)
    padded = wanted.zfill(max(map(len, codes), default=0))
    return (
        by_code.get(wanted)
        or by_code.get(padded)
        or by_text.get(wanted)
        or next((code for name, code in by_code.items() if name.startswith(wanted)), None)
        or next((code for text, code in by_text.items() if f" {wanted} " in f" {text} "), None)
        or _alike(wanted, by_code, 0.6)
        or _alike(wanted, by_text, 0.6)
        or _alike(wanted, by_code, 0.3)
    )


def _alike(wanted, names, least):
    """The code under the name most like `wanted`; `least` is the likeness, 0 to 1, under which none counts."""
    found = get_close_matches(wanted, names, 1, least)
    return names[found[0]] if found else None


def violations(body, places=DOCUMENT):
    """The unknown codes of a body, as [{path, rule, message}], at most 50; absent members are no fault.

    `path` is a JSON Pointer into the body. `places` says which members are codes: `DOCUMENT` for invoices and
    notes, `PARTY` for a body that is one party, `COMPANY` for the company. Spec: Line item, Buyer
    """
    found = (
        violation(path, "code", wording(table, code))
        for place, table in places
        for path, code, beside in _at(body, place.split("/")[1:])
        if not is_known(table, code) and not _is_abroad(table, beside)
    )
    return list(islice(found, MOST_FAULTS))


def _at(value, steps, path="", beside=None):
    """Each text at the end of `steps`, with its pointer and the object or array that holds it."""
    if not steps:
        if isinstance(value, str):
            yield path, value, beside
    elif steps[0] == "*" and isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _at(entry, steps[1:], f"{path}/{index}", value)
    elif isinstance(value, dict):
        yield from _at(value.get(steps[0]), steps[1:], f"{path}/{steps[0]}", value)


def _is_abroad(table, address):
    """Whether this is the state of an address outside Malaysia, where it is free text. Portal: 10.4"""
    return table == "states" and address.get("country", HOME) != HOME


def wording(table, code):
    """What is wrong with `code`, for a person, with the nearest code where one is like it."""
    quoted = code if len(code) <= LONGEST else code[:LONGEST] + "…"
    title = "MSIC codes" if table == "msic" else table.replace("_", " ")
    return f'"{quoted}" is not in the table of {title}{_form(table)}{_hint(table, code)}.'


def _form(table):
    return "" if table in TABLES else f", whose codes are {FORMS[table][1]}"


def _hint(table, code):
    meant = nearest(table, code)
    if meant is None:
        return ""
    described = shorten(TABLES.get(table, {}).get(meant, ""), 80, placeholder=" …")
    return f'; the nearest code is "{meant}"' + (f" ({described})" if described else "")
