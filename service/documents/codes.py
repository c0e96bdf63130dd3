"""The portal's code tables: check codes, and suggest the nearest known code for an unknown one.

The small tables ship as `tables/<name>.json` with their start date (`since`). The two long ones,
units and MSIC, are published by third parties and change often: until `load` imports them, only
the format of their codes is checked. Portal: 12
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

from service.errors import violation

#: table -> {code: description}; `load` replaces or adds a table.
TABLES: dict[str, dict[str, str]] = {
    path.stem: json.loads(path.read_text("utf-8"))["codes"]
    for path in sorted(Path(__file__).with_name("tables").glob("*.json"))
}

#: table -> (pattern, description) of its codes, used until the table is loaded.
FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "units": (re.compile("[A-Z0-9]{1,3}"), "1 to 3 of A-Z and 0-9"),
    "msic": (re.compile("[0-9]{5}"), "5 digits"),
}

#: table -> {code: first day of validity}, for codes that were added by a newer list. Portal: 14.5
SINCE: dict[str, dict[str, date]] = {}

#: table -> {common spelling: code}, for spellings whose most similar code would be the wrong one.
ALIASES = {
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

#: JSON Pointer of a code in a body -> its table, as pairs; `*` matches every entry of an array.
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

#: The places of codes as a tree: {member: subtree}, [subtree of each entry], or the table.
_Tree = dict[str, "_Tree"] | list["_Tree"] | str


def _make_tree(places: Sequence[tuple[Sequence[str], str]]) -> _Tree:
    """Return the tree of places, which are given as (steps, table)."""
    if not places[0][0]:
        return places[0][1]
    by_step: dict[str, list[tuple[Sequence[str], str]]] = {}
    for (step, *steps), table in places:
        by_step.setdefault(step, []).append((steps, table))
    trees = {step: _make_tree(below) for step, below in by_step.items()}
    return [trees["*"]] if "*" in trees else trees


@lru_cache
def _get_tree(places: tuple[tuple[str, str], ...]) -> _Tree:
    return _make_tree([(place.split("/")[1:], table) for place, table in places])


#: Limit of the violations in one response. Most of their cost is the search for the nearest code.
MAX_VIOLATIONS = 50

#: Limit, in characters, above which a value is quoted shortened and gets no suggestion.
MAX_QUOTED = 60


def load_table(
    table: str, codes: Mapping[str, str], since: Mapping[str, date] | None = None
) -> None:
    """Replace a table by `codes`, {code: description}. Raises KeyError for an unknown table.

    `since` is {code: first day of validity}. Codes with the earliest day have always been valid,
    as far as is known: that is the day of the first published list.
    """
    if table not in TABLES and table not in FORMS:
        raise KeyError(table)
    TABLES[table] = dict(codes)
    days = since or {}
    first = min(days.values(), default=date.min)
    SINCE[table] = {code: day for code, day in days.items() if day > first}
    _find_nearest.cache_clear()


def is_known(table: str, code: str) -> bool:
    """Return whether the table has exactly this code; case and leading zeros are significant."""
    if table in TABLES:
        return code in TABLES[table]
    pattern, _ = FORMS[table]
    return pattern.fullmatch(code) is not None


def get_start_day(table: str, code: str) -> date | None:
    """Return the first day of validity of a known code, or None if it has always been valid."""
    return SINCE.get(table, {}).get(code)


def find_nearest(table: str, code: str) -> str | None:
    """Return the known code whose code or description is most similar to `code`, or None."""
    wanted = code.strip().casefold()
    if not wanted or len(wanted) > MAX_QUOTED:
        return None
    meant = ALIASES.get(table, {}).get(wanted)
    return meant if meant and is_known(table, meant) else _find_nearest(table, wanted)


@lru_cache(maxsize=1024)
def _find_nearest(table: str, wanted: str) -> str | None:
    codes = TABLES.get(table, {})
    by_code = {code.casefold(): code for code in codes}
    by_text: dict[str, str] = {}
    for code, text in codes.items():
        by_text.setdefault(text.casefold(), code)
    padded = wanted.zfill(max(map(len, codes), default=0))
    return (
        by_code.get(wanted)
        or by_code.get(padded)
        or by_text.get(wanted)
        or next((code for name, code in by_code.items() if name.startswith(wanted)), None)
        or next((code for text, code in by_text.items() if f" {wanted} " in f" {text} "), None)
        or _find_similar(wanted, by_code, 0.6)
        or _find_similar(wanted, by_text, 0.6)
        or _find_similar(wanted, by_code, 0.3)
    )


def _find_similar(wanted: str, names: dict[str, str], cutoff: float) -> str | None:
    """Return the code of the name most similar to `wanted`; None if below the cutoff, 0 to 1."""
    found = get_close_matches(wanted, names, 1, cutoff)
    return names[found[0]] if found else None


def find_violations(
    body: dict[str, Any], places: tuple[tuple[str, str], ...] = DOCUMENT
) -> list[dict[str, str]]:
    """Return the unknown codes of a body as [{path, rule, message}], at most MAX_VIOLATIONS.

    `path` is a JSON Pointer into the body. `places` lists the members that hold codes: `DOCUMENT`
    for invoices and notes, `PARTY` for a body that is one party, `COMPANY` for the company.
    Absent members are not checked. Spec: Line item, Buyer
    """
    if _has_only_known(body, _get_tree(places)):
        return []
    found = (
        violation(path, "code", describe_unknown_code(table, code))
        for place, table in places
        for path, code, parent in _find_texts(body, place.split("/")[1:])
        if not is_known(table, code) and not _is_state_abroad(table, parent)
    )
    return list(islice(found, MAX_VIOLATIONS))


def _has_only_known(value: Any, tree: _Tree, parent: Any = None) -> bool:
    """Return whether all codes of a value are known. Finds no paths, which takes longer."""
    if isinstance(tree, str):
        return not isinstance(value, str) or is_known(tree, value) or _is_state_abroad(tree, parent)
    if isinstance(tree, list) and isinstance(value, list):
        for entry in cast(list[Any], value):
            if not _has_only_known(entry, tree[0], value):
                return False
    elif isinstance(tree, dict) and isinstance(value, dict):
        for name, subtree in tree.items():
            if name in value and not _has_only_known(value[name], subtree, value):
                return False
    return True


def _find_texts(
    value: dict[str, Any] | list[Any] | str | None,
    steps: Sequence[str],
    path: str = "",
    parent: Any = None,
) -> Iterator[tuple[str, str, Any]]:
    """Yield (pointer, text, object or array that holds it) of each string at the end of `steps`."""
    if not steps:
        if isinstance(value, str):
            yield path, value, parent
    elif steps[0] == "*" and isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _find_texts(entry, steps[1:], f"{path}/{index}", value)
    elif isinstance(value, dict):
        yield from _find_texts(value.get(steps[0]), steps[1:], f"{path}/{steps[0]}", value)


def _is_state_abroad(table: str, address: Any) -> bool:
    """Return whether a code is a state outside Malaysia, which is free text. Portal: 10.4"""
    return table == "states" and address.get("country", HOME) != HOME


def describe_unknown_code(table: str, code: str) -> str:
    """Return the message for an unknown code, with the nearest code if there is a similar one."""
    quoted = code if len(code) <= MAX_QUOTED else code[:MAX_QUOTED] + "…"
    title = "MSIC codes" if table == "msic" else table.replace("_", " ")
    form = "" if table in TABLES else f", whose codes are {FORMS[table][1]}"
    return f'"{quoted}" is not in the table of {title}{form}{_suggest(table, code)}.'


def _suggest(table: str, code: str) -> str:
    meant = find_nearest(table, code)
    if meant is None:
        return ""
    described = shorten(TABLES.get(table, {}).get(meant, ""), 80, placeholder=" …")
    return f'; the nearest code is "{meant}"' + (f" ({described})" if described else "")
