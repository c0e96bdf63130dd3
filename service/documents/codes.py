"""The portal's code tables: check codes, and suggest the nearest known code for an unknown one.

The small tables ship as `tables/<name>.json` with their start date (`since`). The two long ones,
units and MSIC, are published by third parties and change often: until `replace_tables` adds them,
only the form of their codes is checked. Portal: 12
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple, cast

from service.errors import violation


class Validity(NamedTuple):
    """The first and the last day on which a code is valid. Portal: 14.5"""

    first: date = date.min
    last: date = date.max


@dataclass(frozen=True, slots=True, eq=False)
class CodeTable:
    """A version of a code table, which never changes.

    `codes` are {code: description}, `day` is that of the list. `validity` has the codes that are
    not always valid, `imported_at` is None for a table that ships with the service.
    """

    name: str
    codes: Mapping[str, str]
    day: date
    imported_at: datetime | None = None
    validity: Mapping[str, Validity] = field(default_factory=dict[str, Validity])

    def get_validity(self, code: str) -> Validity:
        """Return the days on which a code is valid, as far as they are known."""
        return self.validity.get(code, Validity())


#: Name -> table. Without the tables of FORMS, unless they have been imported.
Tables = Mapping[str, CodeTable]


def _read_built_in(path: Path) -> CodeTable:
    content = json.loads(path.read_text("utf-8"))
    return CodeTable(path.stem, content["codes"], date.fromisoformat(content["since"]))


#: The tables that ship with the service.
BUILT_IN: Tables = {
    path.stem: _read_built_in(path)
    for path in sorted(Path(__file__).with_name("tables").glob("*.json"))
}

#: table -> (pattern, description) of its codes, used until the table is imported.
FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "units": (re.compile("[A-Z0-9]{1,3}"), "1 to 3 of A-Z and 0-9"),
    "msic": (re.compile("[0-9]{5}"), "5 digits"),
}

#: Name -> meaning of its codes, for every table.
DESCRIPTIONS = {
    "classifications": "Classifications of line items.",
    "countries": "Countries, by ISO 3166-1 alpha-3.",
    "currencies": "Currencies, by ISO 4217.",
    "document_types": "Types of documents at the portal.",
    "msic": "Industries of suppliers, by the Malaysia Standard Industrial Classification.",
    "party_types": "Types of buyers and suppliers.",
    "payment_modes": "Modes of payment.",
    "registration_types": "Types of registration numbers.",
    "states": "States and federal territories of Malaysia.",
    "tax_types": "Types of taxes.",
    "units": "Units of measure, by UN/ECE Recommendations 20 and 21.",
}

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
    ("/default_tax_types_and_rates/*/tax_type", "tax_types"),
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


class _Current:
    """The tables that new requests use."""

    tables: Tables = BUILT_IN


#: The tables of a request, or of other work that must see one version.
_pinned: ContextVar[Tables | None] = ContextVar("code_tables", default=None)


def replace_tables(imported: Iterable[CodeTable]) -> None:
    """Use imported tables besides the built-in ones, of which they replace those of their names.

    They replace all that were imported before, at once: work that has pinned its tables keeps them.
    Raises KeyError for an unknown table.
    """
    tables = {table.name: table for table in imported}
    if unknown := tables.keys() - DESCRIPTIONS.keys():
        raise KeyError(*sorted(unknown))
    _Current.tables = {**BUILT_IN, **tables}
    _find_nearest.cache_clear()


def pin_tables() -> None:
    """Keep the present tables for the rest of the task, and in the tasks that it starts."""
    _pinned.set(_Current.tables)


@contextmanager
def one_version() -> Generator[None, None, None]:
    """Keep one version of the tables during the block: the pinned one, or the present one."""
    token = _pinned.set(get_tables())
    try:
        yield
    finally:
        _pinned.reset(token)


def get_tables() -> Tables:
    """Return the tables: those of the present request, or the latest."""
    return _pinned.get() or _Current.tables


def get_names(table: str) -> Mapping[str, str]:
    """Return {code: description} of a table, {} if it has not been imported."""
    found = get_tables().get(table)
    return found.codes if found else {}


def get_all_names() -> dict[str, Mapping[str, str]]:
    """Return {table: {code: description}} of the tables whose codes are known."""
    return {name: table.codes for name, table in get_tables().items()}


def is_loaded(table: str) -> bool:
    """Return whether the codes of a table are known, and not only their form."""
    return table in get_tables()


def is_known(table: str, code: str) -> bool:
    """Return whether the table has exactly this code; case and leading zeros are significant."""
    found = get_tables().get(table)
    if found:
        return code in found.codes
    pattern, _ = FORMS[table]
    return pattern.fullmatch(code) is not None


def get_validity(table: str, code: str) -> Validity:
    """Return the days on which a code is valid, as far as they are known."""
    found = get_tables().get(table)
    return found.get_validity(code) if found else Validity()


def find_nearest(table: str, code: str) -> str | None:
    """Return the known code whose code or description is most similar to `code`, or None."""
    wanted = code.strip().casefold()
    if not wanted or len(wanted) > MAX_QUOTED:
        return None
    meant = ALIASES.get(table, {}).get(wanted)
    if meant and is_known(table, meant):
        return meant
    found = get_tables().get(table)
    return _find_nearest(found, wanted) if found else None


@lru_cache(maxsize=1024)
def _find_nearest(table: CodeTable, wanted: str) -> str | None:
    codes = table.codes
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
    form = "" if is_loaded(table) else f", whose codes are {FORMS[table][1]}"
    return f'"{quoted}" is not in the table of {title}{form}{_suggest(table, code)}.'


def _suggest(table: str, code: str) -> str:
    meant = find_nearest(table, code)
    if meant is None:
        return ""
    described = shorten(get_names(table).get(meant, ""), 80, placeholder=" …")
    return f'; the nearest code is "{meant}"' + (f" ({described})" if described else "")
