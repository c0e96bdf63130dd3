"""Loading the code lists that the authority publishes."""

import re
from pathlib import Path

from service import json_codec
from service.commands.bootstrap import with_database
from service.commands.companies import CommandError
from service.db.statements import sql
from service.documents import codes

#: file name, in lower case and without what is no letter, starts with -> the list that it holds
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


async def import_codes(config, files):
    """{list: number of codes} of what was loaded. Running processes take them over at their next start.

    A file is a JSON array of objects with a code and a name or description, as the authority publishes it.
    Raises CommandError.
    """
    lists = {_list_of(path): _read(path) for path in map(Path, files)}
    async with with_database(config) as (config, database), database.across() as conn:
        for name, entries in lists.items():
            await sql.code_list_put(conn, code_list=name, codes=json_codec.dumps(entries))
    return {name: len(entries) for name, entries in lists.items()}


def _list_of(path):
    stem = re.sub(r"[^a-z]", "", path.stem.lower())
    for start, name in LISTS.items():
        if stem.startswith(start):
            return name
    raise CommandError(
        f"{path.name} is not named after a code list: {', '.join(sorted(set(LISTS.values())))}."
    )


def _read(path):
    try:
        rows = json_codec.loads(path.read_bytes())
        if not isinstance(rows, list):
            raise TypeError("it is no array")
        entries = [_entry({name.lower(): value for name, value in row.items()}) for row in rows]
    except (OSError, json_codec.NotJson, AttributeError, TypeError, StopIteration) as fault:
        raise CommandError(
            f"{path} is not a JSON array of codes ({type(fault).__name__}: {fault})."
        ) from None
    return list({entry["code"]: entry for entry in entries}.values())


def _entry(row):
    """{code, description} from the names that the published files use for them."""
    code = next(row[name] for name in ("code", "id") if name in row)
    if not isinstance(code, str):
        raise TypeError("a code is no text")
    texts = [
        value
        for name, value in row.items()
        if name.startswith(("name", "desc", "state", "country", "currency", "unit", "msic"))
    ]
    return {"code": code, "description": str(texts[0]) if texts else ""}


assert set(LISTS.values()) <= set(codes.TABLES) | {"units", "msic"}
