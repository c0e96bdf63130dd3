"""Named statements: read from sql/queries, called as `await sql.invoice_get(conn, id=42, …)`.

A variable is `:name` and means what psql means by it, so that a person can run the same statement.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from service.db.connections import Connection

QUERIES = Path(__file__).resolve().parents[2] / "sql" / "queries"

_NAME_LINE = re.compile(
    r"^-- name: (?P<name>[a-z0-9_]+) :(?P<kind>one|many|value|exec)$", re.MULTILINE
)
#: Quoted text, comments and casts, which hold no variables; or a variable.
_VARIABLE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::[a-z0-9_]+|:(?P<name>[a-z][a-z0-9_]*)")
_FETCH = {"one": "fetchrow", "many": "fetch", "value": "fetchval", "exec": "execute"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: `text` as psql reads it, `query` with $1 for its first variable."""

    name: str
    kind: str
    text: str
    query: str
    variables: tuple[str, ...]

    async def __call__(self, conn: Connection | asyncpg.Pool, **values: Any) -> Any:
        """Run the statement. Raises TypeError for a missing or an unknown variable."""
        if values.keys() != set(self.variables):
            raise TypeError(
                f"{self.name} takes {', '.join(self.variables)}; got {', '.join(values)}"
            )
        return await getattr(conn, _FETCH[self.kind])(
            self.query, *[values[name] for name in self.variables]
        )


class Statements:
    """The statements of a folder, each as an attribute."""

    def __init__(self, folder: Path) -> None:
        self.by_name: dict[str, Statement] = {}
        for path in sorted(folder.glob("*.sql")):
            for statement in parse(path.read_text()):
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
    return [
        _statement(head.groupdict(), text[head.start() : end].strip())
        for head, end in zip(heads, ends, strict=True)
    ]


def _statement(head: Mapping[str, str], text: str) -> Statement:
    variables: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        if name not in variables:
            variables.append(name)
        return f"${variables.index(name) + 1}"

    query = _VARIABLE.sub(number, text).rstrip().rstrip(";")
    return Statement(head["name"], head["kind"], text, query, tuple(variables))


sql = Statements(QUERIES)
