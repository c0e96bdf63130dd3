"""The SQLite file and the named statements of `sql/`.

One connection and one thread: a handler that does not await between two statements has the data to
itself. A commit reaches the operating system before it returns, so a killed process loses nothing
that it has acknowledged.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

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


def run_statement(kind: str, text: str, db: sqlite3.Connection, /, **values: object) -> object:
    """Run a statement with named values and return its result."""
    return READERS[kind](db.execute(text, values))


def load_statements() -> SimpleNamespace:
    """Return the statements of all files as attributes."""
    statements: dict[str, partial[object]] = {}
    for path in sorted(FOLDER.glob("*.sql")):
        parts = NAME.split(path.read_text("utf-8"))[1:]
        for name, kind, text in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
            statements[name] = partial(run_statement, kind, text)
    return SimpleNamespace(**statements)


#: `sql.document_get(db, uuid=...)` runs the statement of that name.
sql = load_statements()


def open_database(path: str) -> sqlite3.Connection:
    """Open the file with its tables. Both are created if they are missing."""
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.row_factory = Row
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = normal")
    db.executescript((FOLDER / "schema.sql").read_text("utf-8"))
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction that is rolled back if it raises."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def empty(db: sqlite3.Connection) -> None:
    """Delete all rows, including the sequence of documents."""
    tables = [
        row["name"] for row in db.execute("select name from sqlite_master where type = 'table'")
    ]
    with transaction(db):
        for table in tables:
            db.execute(f"delete from {table}")
