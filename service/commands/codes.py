"""Import of the code lists that the authority publishes."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service import json_codec
from service.commands.bootstrap import run, with_database
from service.commands.command_line import CommandLine, print_json
from service.commands.companies import CommandError
from service.config import Config, read_config
from service.db.statements import sql
from service.documents import codes

#: The start of a file name, in lower case and letters only -> the list in the file
LISTS = {
    "unittypes": "units",
    "units": "units",
    "msic": "msic",
    "statecodes": "states",
    "states": "states",
    "classification": "classifications",
    "taxtypes": "tax_types",
    "paymentm": "payment_modes",
    "countr": "countries",
    "currenc": "currencies",
    "einvoicetypes": "document_types",
}
assert set(LISTS.values()) <= set(codes.TABLES) | {"units", "msic"}


def register(line: CommandLine) -> None:
    """Add the command."""
    parser = line.add(
        "import-codes",
        _import_codes,
        "Load code lists as the authority publishes them: units, MSIC, "
        "newer versions of the others.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")


def _import_codes(options: argparse.Namespace) -> None:
    print_json(run(import_codes(read_config(), options.files)))


async def import_codes(config: Config, files: Sequence[str | Path]) -> dict[str, int]:
    """Load code lists and return {list: number of codes}. Processes use them at their next start.

    A file is a JSON array of objects with a code and a name or description, as the authority
    publishes it. Raises CommandError.
    """
    lists = {_list_of(path): _read(path) for path in map(Path, files)}
    async with with_database(config) as (config, database), database.across() as conn:
        for name, entries in lists.items():
            await sql.code_list_put(conn, code_list=name, codes=json_codec.dumps(entries))
    return {name: len(entries) for name, entries in lists.items()}


def _list_of(path: Path) -> str:
    stem = re.sub(r"[^a-z]", "", path.stem.lower())
    for start, name in LISTS.items():
        if stem.startswith(start):
            return name
    raise CommandError(
        f"{path.name} is not named after a code list: {', '.join(sorted(set(LISTS.values())))}."
    )


def _read(path: Path) -> list[dict[str, str]]:
    try:
        rows = json_codec.loads(path.read_bytes())
        if not isinstance(rows, list):
            raise TypeError("not an array")
        entries = [_entry({name.lower(): value for name, value in row.items()}) for row in rows]
    except (OSError, json_codec.NotJson, AttributeError, TypeError, StopIteration) as error:
        raise CommandError(
            f"{path} is not a JSON array of codes ({type(error).__name__}: {error})."
        ) from None
    return list({entry["code"]: entry for entry in entries}.values())


def _entry(row: Mapping[str, Any]) -> dict[str, str]:
    """Return {code, description} from the member names of the published files."""
    code = next(row[name] for name in ("code", "id") if name in row)
    if not isinstance(code, str):
        raise TypeError("a code is not a string")
    texts = [
        value
        for name, value in row.items()
        if name.startswith(("name", "desc", "state", "country", "currency", "unit", "msic"))
    ]
    return {"code": code, "description": str(texts[0]) if texts else ""}
