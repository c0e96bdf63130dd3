"""The portal's code tables: check codes, and suggest the nearest known code for an unknown one.

The tables ship as `tables/<name>.json` with their start date (`since`). An operator imports newer
lists of the authority with `replace_tables`. Portal: 12
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from service import json_codec
from service.errors import violation
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

#: JSON Pointer of a code in a body -> its table, as pairs; `*` matches every entry of an array.
Places = tuple[tuple[str, str], ...]


def _read_places(name: str) -> Iterator[tuple[str, str]]:
    """Yield the places of codes in a form. A place with the name of another form has its places."""
    for place, table in _DATA["places"][name].items():
        if table in _DATA["places"]:
            yield from ((place + inner, known) for inner, known in _read_places(table))
        else:
            yield place, table


PARTY, DOCUMENT, COMPANY = (tuple(_read_places(name)) for name in ("party", "document", "company"))

HOME = "MYS"


#: Returns whether all codes of a value are in the tables.
_Checker = Callable[[Any, Tables], bool]


def _make_checker(places: Sequence[tuple[Sequence[str], str]]) -> _Checker:
    """Return the checker of a value with codes at places, which are given as (steps, table)."""
    by_step: dict[str, list[tuple[Sequence[str], str]]] = {}
    for (step, *steps), table in places:
        by_step.setdefault(step, []).append((steps, table))
    tables = {step: below[0][1] for step, below in by_step.items() if not below[0][0]}
    checkers = {step: _make_checker(below) for step, below in by_step.items() if below[0][0]}
    if "*" in checkers:
        return partial(_has_known_entries, checkers["*"])
    if "*" in tables:
        return partial(_has_known_codes, tables["*"])
    return partial(_has_known_members, tuple(tables.items()), tuple(checkers.items()))


# Generators for all() would take longer than the checks.


def _has_known_codes(table: str, codes: list[str], tables: Tables) -> bool:
    for code in codes:  # noqa: SIM110
        if code not in tables[table].codes:
            return False
    return True


def _has_known_entries(checker: _Checker, entries: Sequence[Json], tables: Tables) -> bool:
    for entry in entries:  # noqa: SIM110
        if not checker(entry, tables):
            return False
    return True


def _has_known_members(
    named: Sequence[tuple[str, str]],
    checkers: Sequence[tuple[str, _Checker]],
    members: JsonObject,
    tables: Tables,
) -> bool:
    for name, table in named:
        if (
            (code := members.get(name)) is not None
            and code not in tables[table].codes
            and not (name == "state" and _is_abroad(members))
        ):
            return False
    for name, checker in checkers:
        if (member := members.get(name)) is not None and not checker(member, tables):
            return False
    return True


@lru_cache
def _get_checker(places: Places) -> _Checker:
    return _make_checker([(place.split("/")[1:], table) for place, table in places])


#: Limit of the violations in one response.
MAX_VIOLATIONS = 50

#: Limit of the searches for a similar code in one response. Others get no suggestion.
MAX_SEARCHES = 5

#: Limit, in characters, above which no similar code is searched for.
MAX_SEARCHED = 30

#: Limit, in characters, above which a value is quoted shortened and gets no suggestion.
MAX_QUOTED = 60


class _Current:
    """The version of the tables that new requests use."""

    tables = BUILT_IN


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
    _Current.tables = {**BUILT_IN, **{table.name: table for table in imported}}
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
    _pinned.set(_Work(_Current.tables))


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
    return _pinned.get() or _Work(_Current.tables)


def get_names(table: str) -> Mapping[str, str]:
    """Return {code: description} of a table."""
    return get_tables()[table].codes


def get_all_names() -> dict[str, Mapping[str, str]]:
    """Return {table: {code: description}} of all tables."""
    return {name: table.codes for name, table in get_tables().items()}


def is_known(table: str, code: str) -> bool:
    """Return whether the table has exactly this code; case and leading zeros are significant."""
    return code in get_names(table)


def get_validity(table: str, code: str) -> Validity:
    """Return the days on which a code is valid, as far as they are known."""
    return get_tables()[table].get_validity(code)


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

    The body is valid by its schema, and `path` is a JSON Pointer into it. `places` lists the
    members that hold codes: `DOCUMENT` for invoices and notes, `PARTY` for a body that is one
    party, `COMPANY` for the company. Absent members are not checked. Spec: Line item, Buyer
    """
    # The checker makes no paths, which takes most of the time of the search.
    if _get_checker(places)(body, get_tables()):
        return []
    return search_violations(body, places)


def search_violations(body: JsonObject, places: Places) -> list[dict[str, str]]:
    """Return what find_violations returns, also for a body that is not valid by its schema."""
    found = (
        violation(path, "code", describe_unknown_code(table, code))
        for place, table in places
        for path, code, parent in _find_texts(body, place.split("/")[1:], "", body)
        if not is_known(table, code) and not (table == "states" and _is_abroad(parent))
    )
    return list(islice(found, MAX_VIOLATIONS))


def _find_texts(
    value: Json,
    steps: Sequence[str],
    path: str,
    parent: JsonMapping,
) -> Iterator[tuple[str, str, JsonMapping]]:
    """Yield (pointer, text, innermost object around it) of each string at the end of `steps`."""
    if not steps:
        if isinstance(value, str):
            yield path, value, parent
    elif steps[0] == "*" and isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _find_texts(entry, steps[1:], f"{path}/{index}", parent)
    elif isinstance(value, dict):
        yield from _find_texts(value.get(steps[0]), steps[1:], f"{path}/{steps[0]}", value)


def _is_abroad(address: JsonMapping) -> bool:
    """Return whether an address is outside Malaysia, where a state is free text. Portal: 10.4"""
    return address.get("country", HOME) != HOME


def describe_unknown_code(table: str, code: str) -> str:
    """Return the message for an unknown code, with the nearest code if there is a similar one."""
    quoted = code if len(code) <= MAX_QUOTED else code[:MAX_QUOTED] + "…"
    title = "MSIC codes" if table == "msic" else table.replace("_", " ")
    return f'"{quoted}" is not in the table of {title}{_suggest(table, code)}.'


def _suggest(table: str, code: str) -> str:
    meant = find_nearest(table, code)
    if meant is None:
        return ""
    described = shorten(get_names(table).get(meant, ""), 80, placeholder=" …")
    return f'; the nearest code is "{meant}"' + (f" ({described})" if described else "")
