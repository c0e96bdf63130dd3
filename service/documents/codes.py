"""The portal's code tables: check codes, and suggest the nearest known code for an unknown one.

The tables ship as `tables/<name>.json` with their start date (`since`). An operator imports newer
lists of the authority with `replace_tables`. Portal: 12
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple, TypeAlias

from service import json_codec
from service.errors import MAX_VIOLATIONS, violation
from service.json_types import Json, JsonMapping, JsonObject


class Validity(NamedTuple):
    """The first and the last day on which a code is valid. Portal: 14.5"""

    first: date = date.min
    last: date = date.max


@dataclass(frozen=True, slots=True, eq=False)
class CodeTable:
    """A version of a code table, which never changes.

    `codes` are {code: description}. `day` is the start date of a table that ships with the service,
    else the day of the import in UTC. `imported_at` is None for a table that ships. `validity` has
    the codes that are not always valid.
    """

    name: str
    codes: Mapping[str, str]
    day: date
    imported_at: datetime | None = None
    validity: Mapping[str, Validity] = field(default_factory=dict[str, Validity])

    def get_validity(self, code: str) -> Validity:
        """Return the days on which a code is valid, as far as they are known."""
        return self.validity.get(code, Validity())


#: Name -> table.
Tables = Mapping[str, CodeTable]


def _read_built_in(path: Path) -> CodeTable:
    content = json.loads(path.read_text("utf-8"))
    return CodeTable(path.stem, content["codes"], date.fromisoformat(content["since"]))


_DATA: JsonObject = json_codec.load_data(__file__)
#: Name -> meaning of its codes, for every table.
DESCRIPTIONS: dict[str, str] = _DATA["descriptions"]

#: The tables that ship with the service.
BUILT_IN: Tables = {
    name: _read_built_in(Path(__file__).with_name("tables") / f"{name}.json")
    for name in DESCRIPTIONS
}

#: table -> {common spelling: code}, for spellings whose most similar code would be the wrong one.
ALIASES: dict[str, dict[str, str]] = _DATA["aliases"]

#: The place of codes in a body: the table of a code, [the place in each entry of an array], or the
#: places in the members of an object.
Place: TypeAlias = "str | list[str | Places] | Places"
Places: TypeAlias = dict[str, Place]

_REGISTRATION: Places = {"type": "registration_types"}
_ADDRESS: Places = {"state": "states", "country": "countries"}
PARTY: Places = {
    "type": "party_types",
    "registration": _REGISTRATION,
    "msic": "msic",
    "address": _ADDRESS,
}
DOCUMENT: Places = {
    "currencyCode": "currencies",
    "buyer": PARTY,
    "supplier": PARTY,
    "delivery": {"registration": _REGISTRATION, "address": _ADDRESS},
    "payment": {"mode": "payment_modes"},
    "lineItems": [
        {
            "classifications": ["classifications"],
            "unit": {"code": "units"},
            "taxDetails": [{"taxType": "tax_types"}],
            "originCountry": "countries",
        }
    ],
}
COMPANY: Places = {
    "registration_type": "registration_types",
    "msic_code": "msic",
    "state": "states",
    "country": "countries",
    "default_tax_types_and_rates": [{"tax_type": "tax_types"}],
}

#: Limit of the searches for a similar code in one response. Others get no suggestion.
MAX_SEARCHES = 5

#: Limit, in characters, above which no similar code is searched for.
MAX_SEARCHED = 30

#: Limit, in characters, above which a value is quoted shortened and gets no suggestion.
MAX_QUOTED = 60


#: The version of the tables that new requests use.
_latest = BUILT_IN


@dataclass(frozen=True, slots=True)
class _Work:
    """A request, or other work that must see one version of the tables.

    `searches` are its searches for similar codes: (table, text) -> the most similar code.
    """

    tables: Tables
    searches: dict[tuple[str, str], str | None] = field(
        default_factory=dict[tuple[str, str], str | None]
    )


_pinned: ContextVar[_Work | None] = ContextVar("code_tables", default=None)


def replace_tables(imported: Iterable[CodeTable]) -> None:
    """Use imported tables, and the built-in ones for other names.

    They replace all that were imported before, at once: work that has pinned its tables keeps them.
    """
    global _latest
    _latest = {**BUILT_IN, **{table.name: table for table in imported}}
    _fold.cache_clear()


def add_built_in(imported: CodeTable) -> CodeTable:
    """Return an imported table with the built-in codes that it omits, since documents name them.

    The file of units that the authority publishes omits a code of its web page. Raises KeyError for
    an unknown table.
    """
    known = {**BUILT_IN[imported.name].codes, **imported.codes}
    return replace(imported, codes=dict(sorted(known.items())))


def pin_tables() -> None:
    """Keep the present tables for the rest of the task, and in the tasks that it starts.

    The task makes at most MAX_SEARCHES searches for similar codes.
    """
    _pinned.set(_Work(_latest))


@contextmanager
def one_version() -> Generator[None, None, None]:
    """Keep one version of the tables during the block: the pinned one, or the present one."""
    token = _pinned.set(_get_work())
    try:
        yield
    finally:
        _pinned.reset(token)


def get_tables() -> Tables:
    """Return the tables: those of the present request, or the latest."""
    return _get_work().tables


def _get_work() -> _Work:
    return _pinned.get() or _Work(_latest)


def get_names(table: str) -> Mapping[str, str]:
    """Return {code: description} of a table."""
    return get_tables()[table].codes


def get_all_names() -> dict[str, Mapping[str, str]]:
    """Return {table: {code: description}} of all tables."""
    return {name: table.codes for name, table in get_tables().items()}


def is_known(table: str, code: str) -> bool:
    """Return whether the table has exactly this code; case and leading zeros are significant."""
    return code in get_names(table)


def find_nearest(table: str, code: str) -> str | None:
    """Return the known code whose code or description is most similar to `code`, or None."""
    wanted = code.strip().casefold()
    if not wanted or len(wanted) > MAX_QUOTED:
        return None
    meant = ALIASES.get(table, {}).get(wanted)
    if meant and is_known(table, meant):
        return meant
    found = get_tables()[table]
    return _find_named(found, wanted) or _search_similar(found, wanted)


@lru_cache
def _fold(table: CodeTable) -> tuple[dict[str, str], dict[str, str]]:
    """Return {folded code: code} and {folded description: code}."""
    by_text: dict[str, str] = {}
    for code, text in table.codes.items():
        by_text.setdefault(text.casefold(), code)
    return {code.casefold(): code for code in table.codes}, by_text


def _find_named(table: CodeTable, wanted: str) -> str | None:
    """Return the code that a text names: by other case, zeros, its beginning or description."""
    by_code, by_text = _fold(table)
    padded = wanted.zfill(max(map(len, by_code), default=0))
    return (
        by_code.get(wanted)
        or by_code.get(padded)
        or by_text.get(wanted)
        or next((code for name, code in by_code.items() if name.startswith(wanted)), None)
        or next((code for text, code in by_text.items() if f" {wanted} " in f" {text} "), None)
    )


def _search_similar(table: CodeTable, wanted: str) -> str | None:
    """Return the most similar code, or None, also after MAX_SEARCHES: each takes milliseconds."""
    searches = _get_work().searches
    key = (table.name, wanted)
    if key not in searches:
        if len(searches) >= MAX_SEARCHES or len(wanted) > MAX_SEARCHED:
            return None
        by_code, by_text = _fold(table)
        searches[key] = (
            _find_similar(wanted, by_code, 0.6)
            or _find_similar(wanted, by_text, 0.6)
            or _find_similar(wanted, by_code, 0.3)
        )
    return searches[key]


def _find_similar(wanted: str, names: dict[str, str], cutoff: float) -> str | None:
    """Return the code of the name most similar to `wanted`; None if below the cutoff, 0 to 1."""
    found = get_close_matches(wanted, names, 1, cutoff)
    return names[found[0]] if found else None


def find_violations(body: JsonObject, places: Places = DOCUMENT) -> list[dict[str, str]]:
    """Return the unknown codes of a body as [{path, rule, message}], at most MAX_VIOLATIONS.

    The body is valid by its schema, and `path` is a JSON Pointer into it. `places` is `DOCUMENT`
    for invoices and notes, `PARTY` for a body that is one party, `COMPANY` for the company. Absent
    members are not checked. Spec: Line item, Buyer
    """
    # Without paths, which take most of the time of the search.
    return [] if _has_known(body, places, get_tables()) else search_violations(body, places)


def _has_known(members: JsonMapping, places: Places, tables: Tables) -> bool:
    """Return whether all codes of an object are in the tables."""
    # Generators for all() and isinstance() would take longer than the checks.
    for name, place in places.items():
        if (member := members.get(name)) is None:
            continue
        if type(place) is str:
            if member not in tables[place].codes and not _is_free(place, members):
                return False
        elif type(place) is dict:
            if not _has_known(member, place, tables):
                return False
        else:
            (inner,) = place
            for entry in member:
                if isinstance(inner, str):
                    if entry not in tables[inner].codes:
                        return False
                elif not _has_known(entry, inner, tables):
                    return False
    return True


def search_violations(body: JsonObject, places: Places) -> list[dict[str, str]]:
    """Return what find_violations returns, also for a body that is not valid by its schema."""
    found = (
        violation(path, "code", describe_unknown_code(table, code))
        for table, path, code, holder in _find_codes(places, [("", body, body)])
        if not is_known(table, code) and not _is_free(table, holder)
    )
    return list(islice(found, MAX_VIOLATIONS))


def _find_codes(
    place: Place, values: Sequence[tuple[str, Json, JsonMapping]]
) -> Iterator[tuple[str, str, str, JsonMapping]]:
    """Yield (table, path, code, innermost object around it) of each code at a place.

    `values` are the (path, value, innermost object around it) in which the place is.
    """
    if isinstance(place, str):
        for path, value, holder in values:
            if isinstance(value, str):
                yield place, path, value, holder
    elif isinstance(place, list):
        entries = [
            (f"{path}/{index}", entry, holder)
            for path, value, holder in values
            if isinstance(value, list)
            for index, entry in enumerate(value)
        ]
        yield from _find_codes(place[0], entries)
    else:
        for name, inner in place.items():
            members = [
                (f"{path}/{name}", value.get(name), value)
                for path, value, _ in values
                if isinstance(value, dict)
            ]
            yield from _find_codes(inner, members)


def _is_free(place: Place, holder: JsonMapping) -> bool:
    """Return whether a member is free text: a state outside Malaysia. Portal: 10.4"""
    return place == "states" and holder.get("country", "MYS") != "MYS"


def describe_unknown_code(table: str, code: str) -> str:
    """Return the message for an unknown code, with the nearest code if there is a similar one."""
    quoted = code if len(code) <= MAX_QUOTED else code[:MAX_QUOTED] + "…"
    title = "MSIC codes" if table == "msic" else table.replace("_", " ")
    text = f'"{quoted}" is not in the table of {title}'
    if meant := find_nearest(table, code):
        text += f'; the nearest code is "{meant}"'
        if described := shorten(get_names(table).get(meant, ""), 80, placeholder=" …"):
            text += f" ({described})"
    return f"{text}."
