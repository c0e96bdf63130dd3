"""Named statements: read from sql/queries, called as `await sql.invoice_get(conn, id=42, …)`.

A variable is `:name` and means what psql means by it, so that a person can run the same statement.
A statement with {kind} in its name is written for each kind of document. A function of
sql/functions is a statement, too, whose variables are its parameters.

Row-level security needs the owner of the rows, a company or an account, in a setting. A transaction
sets it when it begins, and its statements get the variables of this owner that they are called
without. A statement that is a transaction by itself runs as `isolated`: the query with a first step
that sets the owner.
"""

import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.db.connections import Connection, get_owner

#: What a statement returns, by its kind: a Record or None, Records, a value, or a command tag.
Result = Any
#: The run of a statement, to be awaited.
Run = Coroutine[Any, Any, Result]
#: Variables that name the owner of rows, and the name of the setting of this owner.
OWNERS = {
    "company_id": "'app.company_id'",
    "account_id": "'app.account_id'",
    "owner_id": "'app.' || :owner_kind::text || '_id'",
}
KINDS = ("invoice", "adjustment_note", "consolidated_invoice")
QUERIES = Path(__file__).resolve().parents[2] / "sql" / "queries"
FUNCTIONS = QUERIES.parent / "functions"

_NAME_LINE = re.compile(
    r"^-- name: (?P<name>[a-z0-9_{}]+) :(?P<kind>one|many|value|exec)$", re.MULTILINE
)
#: Quoted text, comments and casts, which hold no variables; or a variable.
_VARIABLE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::[a-z0-9_]+|:(?P<name>[a-z][a-z0-9_]*)")
_FUNCTION = re.compile(
    r"^create or replace function (?P<name>\w+)\((?P<parameters>[^)]*)\)\s+returns (?P<type>\w+)",
    re.MULTILINE,
)
_FETCH = {"one": "fetchrow", "many": "fetch", "value": "fetchval", "exec": "execute"}

#: Sets the owner, then runs a query. The reference to `tenant` inside the lateral subquery and its
#: `offset 0` keep PostgreSQL from reading a table before the setting exists, which would find no
#: row.
_ISOLATED = """with tenant as materialized (
  select set_config({setting}, :{owner}::bigint::text, true) as owner
)
select result.*
  from tenant
 cross join lateral (select * from (
{query}
) query where tenant.owner is not null offset 0) result"""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One statement: `text` as psql reads it, `query` with $1 for its first variable.

    `isolated` is the query as a transaction of its own, empty if it has no variable of an owner.
    """

    name: str
    kind: str
    text: str
    query: str
    isolated: str
    variables: tuple[str, ...]

    # A coroutine of its own would cost each statement about a microsecond.
    def __call__(self, conn: Connection, **values: object) -> Run:
        """Run the statement. Raises TypeError for a missing or an unknown variable.

        Within a transaction of an owner, its variables need not be given.
        """
        return self._run(conn, self.query, values)

    def run_isolated(self, conn: Connection, values: Mapping[str, object]) -> Run:
        """Run the statement as a transaction of its own that is isolated to its owner."""
        return self._run(conn, self.isolated, values)

    def _run(self, conn: Connection, query: str, values: Mapping[str, object]) -> Run:
        if len(values) != len(self.variables):
            owner = get_owner(conn)
            values = {**{name: owner[name] for name in self.variables if name in owner}, **values}
            if len(values) != len(self.variables):
                raise self._mismatch(values)
        try:
            arguments = [values[name] for name in self.variables]
        except KeyError:
            raise self._mismatch(values) from None
        return getattr(conn, _FETCH[self.kind])(query, *arguments)

    def _mismatch(self, values: Mapping[str, object]) -> TypeError:
        return TypeError(f"{self.name} takes {', '.join(self.variables)}; got {', '.join(values)}")


class Statements:
    """The statements of a folder, and the functions of another one, each as an attribute."""

    def __init__(self, folder: Path, functions: Path | None = None) -> None:
        self.by_name: dict[str, Statement] = {}
        for path in sorted(folder.glob("*.sql")):
            self._add(path, parse(path.read_text("utf-8")))
        for path in sorted(functions.glob("*/*.sql")) if functions else ():
            self._add(path, [parse_function(path.read_text("utf-8"))])

    def _add(self, path: Path, found: list[Statement]) -> None:
        for statement in found:
            if statement.name in self.by_name:
                raise ValueError(f"{path.name}: duplicate statement {statement.name}")
            self.by_name[statement.name] = statement

    def __getattr__(self, name: str) -> Statement:
        try:
            return self.by_name[name]
        except KeyError:
            raise AttributeError(f"no statement is named {name}") from None


def parse(text: str) -> list[Statement]:
    """Return the statements of one file, in its order."""
    heads = list(_NAME_LINE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    texts = [text[head.start() : end].strip() for head, end in zip(heads, ends, strict=True)]
    return [
        _statement(head["name"].replace("{kind}", kind), head["kind"], part.replace("{kind}", kind))
        for head, part in zip(heads, texts, strict=True)
        for kind in (KINDS if "{kind}" in head["name"] else ("{kind}",))
    ]


def parse_function(text: str) -> Statement:
    """Return the statement that calls the function of a file."""
    head = _FUNCTION.search(text)
    if head is None:
        raise ValueError(f"no function is created by: {text[:80]}")
    name = head["name"]
    kind = "value" if head["type"] != "table" else "one" if " rows 1 " in text else "many"
    variables = [part.split()[0] for part in head["parameters"].split(",") if part.strip()]
    return _statement(
        name, kind, f"select * from {name}({', '.join(f':{each}' for each in variables)})"
    )


def _statement(name: str, kind: str, text: str) -> Statement:
    variables: list[str] = []

    def number(found: re.Match[str]) -> str:
        variable = found["name"]
        if variable is None:
            return found[0]
        if variable not in variables:
            variables.append(variable)
        return f"${variables.index(variable) + 1}"

    query = _VARIABLE.sub(number, text).rstrip().rstrip(";")
    owner = next((name for name in variables if name in OWNERS), None)
    isolated = owner and _VARIABLE.sub(
        number, _ISOLATED.format(owner=owner, setting=OWNERS[owner], query=query)
    )
    return Statement(name, kind, text, query, isolated or "", tuple(variables))


sql = Statements(QUERIES, FUNCTIONS)
