"""The sqlite file and the named statements of `sql/`.

One connection, one thread: a handler that does not await between two statements is alone with the data.
A commit reaches the operating system before it returns, so a killed process loses nothing it answered.
"""

import re
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(__file__).with_name("sql")
NAME = re.compile(r"^-- name: (\w+) :(\w+)\n", re.M)

#: kind of a statement -> what a call of it returns. All rows are read, so that no statement stays
#: open.
READ = {
    "one": lambda cursor: next(iter(cursor.fetchall()), None),
    "many": lambda cursor: cursor.fetchall(),
    "value": lambda cursor: next((row[0] for row in cursor.fetchall()), None),
    "exec": lambda cursor: cursor.rowcount,
}


def statement(kind, text):
    def call(db, **values):
        return READ[kind](db.execute(text, values))

    return call


def load_statements():
    found = {}
    for path in sorted(FOLDER.glob("*.sql")):
        parts = NAME.split(path.read_text("utf-8"))[1:]
        for name, kind, text in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
            found[name] = statement(kind, text)
    return SimpleNamespace(**found)


#: sql.document_get(db, uuid=...) runs the statement of that name.
sql = load_statements()


def open_database(path):
    """Opens the file, which is made when missing, with its tables."""
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = normal")
    db.executescript((FOLDER / "schema.sql").read_text("utf-8"))
    return db


@contextmanager
def transaction(db):
    db.execute("begin immediate")
    try:
        yield db
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def empty(db):
    """Forgets everything, including the sequence of documents."""
    tables = [
        row["name"] for row in db.execute("select name from sqlite_master where type = 'table'")
    ]
    with transaction(db):
        for table in tables:
            db.execute(f"delete from {table}")
