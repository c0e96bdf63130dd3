"""The SQLite file and the named statements of `sql/`.

One connection and one thread: a handler that does not await between two statements has the data to
itself. A commit reaches the operating system before it returns, so a killed process loses nothing
that it has acknowledged.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("sql")
NAME = re.compile(r"^-- name: (\w+) :(\w+)\n", re.M)

Row = sqlite3.Row

#: Kind of a statement -> its result. All rows are read, so that no statement stays open.
READERS: dict[str, Callable[[sqlite3.Cursor], object]] = {
    "one": lambda cursor: next(iter(cursor.fetchall()), None),
    "many": lambda cursor: cursor.fetchall(),
    "value": lambda cursor: next((row[0] for row in cursor.fetchall()), None),
    "exec": lambda cursor: cursor.rowcount,
}


def load_statements() -> dict[str, tuple[str, str]]:
    """Return the kind and the text of the statements of all files by name."""
    statements: dict[str, tuple[str, str]] = {}
    for path in sorted(FOLDER.glob("*.sql")):
        parts = NAME.split(path.read_text("utf-8"))[1:]
        for name, kind, text in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
            statements[name] = kind, text
    return statements


STATEMENTS = load_statements()


class Database(sqlite3.Connection):
    """The file. `db.document_get(uuid=...)` runs the statement of that name."""

    def __init__(self, path: str) -> None:
        """Open the file with its tables. Both are created if they are missing."""
        if path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, isolation_level=None, check_same_thread=False)
        self.row_factory = Row
        self.execute("pragma journal_mode = wal")
        self.execute("pragma synchronous = normal")
        self.executescript((FOLDER / "schema.sql").read_text("utf-8"))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in STATEMENTS:
            raise AttributeError(name)
        kind, text = STATEMENTS[name]
        return lambda **values: READERS[kind](self.execute(text, values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction that is rolled back if it raises."""
        with self:
            self.execute("begin immediate")
            yield

    def empty(self) -> None:
        """Delete all rows, including the sequence of documents."""
        tables = self.execute("select name from sqlite_master where type = 'table'").fetchall()
        with self.transaction():
            for table in tables:
                self.execute(f"delete from {table['name']}")
