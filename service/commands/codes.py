"""Import of the code lists that the authority publishes."""

import re
import sys
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path

import aiohttp

from service import json_codec
from service.commands.command_line import CommandLine
from service.config import Config
from service.db.statements import sql
from service.db.transactions import Database
from service.documents import codes
from service.documents.checks.rule import PORTAL_ZONE
from service.documents.codes import CodeTable, Validity
from service.errors import OperatorError
from service.http.code_lists import read_tables
from service.json_types import JsonMapping, JsonObject

#: The start of a file name, in lower case and letters only -> the list in the file
LISTS = {
    "unit": "units",
    "msic": "msic",
    "state": "states",
    "classification": "classifications",
    "taxtypes": "tax_types",
    "paymentm": "payment_modes",
    "countr": "countries",
    "currenc": "currencies",
    "einvoicetypes": "document_types",
}
SANDBOX_TIMEOUT = aiohttp.ClientTimeout(total=10)
assert set(LISTS.values()) <= codes.DESCRIPTIONS.keys()


def register(line: CommandLine) -> None:
    line.add("import-codes", import_codes)


async def import_codes(
    config: Config, database: Database, files: Sequence[str | Path]
) -> dict[str, int]:
    """Load newer code lists as the authority publishes them.

    Built-in codes that a list omits stay.
    """
    lists: dict[str, list[dict[str, str]]] = {}
    for path in map(Path, files):
        name = _list_of(path)
        if name in lists:
            raise OperatorError(f"Two files are named after the code list {name}.")
        lists[name] = read_codes(path)
        _add_built_in_days(name, lists[name])
    async with database.across() as conn, conn.transaction():
        await sql.transaction_lock(conn, name="einvoice code lists")
        for name, entries in lists.items():
            await sql.code_list_put(conn, code_list=name, codes=json_codec.dumps(entries))
        await sql.notify(conn, channel="code_lists_changed", payload="")
    await share_with_sandbox(config, database)
    return {name: len(entries) for name, entries in lists.items()}


async def share_with_sandbox(config: Config, database: Database) -> None:
    """Send the imported lists to the sandbox, if the portal is one."""
    if config.has_live_portal:
        return
    tables = await database.call(read_tables)
    address = f"{config.portal_api_base}/_sandbox/code-lists"
    try:
        async with aiohttp.ClientSession(timeout=SANDBOX_TIMEOUT) as session:
            for table in tables:
                if table.name != "document_types":  # The sandbox has these from the protocol.
                    async with session.put(address, json=_to_sandbox(table)) as response:
                        response.raise_for_status()
    except (aiohttp.ClientError, TimeoutError) as error:
        print(
            f"The portal sandbox did not accept the code lists at {address} "
            f"({str(error) or type(error).__name__}). Import them again while it runs.",
            file=sys.stderr,
        )


def _add_built_in_days(name: str, entries: list[dict[str, str]]) -> None:
    """Add the first days of the codes that the service has without an import."""
    table = codes.BUILT_IN[name]
    for entry in entries:
        if entry["code"] in table.codes:
            entry["built_in_from"] = table.get_validity(entry["code"]).first.isoformat()


def _to_sandbox(table: CodeTable) -> JsonObject:
    return {
        "list": table.name,
        "codes": [{"code": code, **_limits(table.get_validity(code))} for code in table.codes],
    }


def _limits(validity: Validity) -> dict[str, str]:
    """Return the first instant of a validity, and the first one after it, if there are any."""
    limits: dict[str, str] = {}
    if validity.first > date.min:
        limits["from"] = datetime.combine(validity.first, time(), PORTAL_ZONE).isoformat()
    if validity.last < date.max:
        after = validity.last + timedelta(days=1)
        limits["to"] = datetime.combine(after, time(), PORTAL_ZONE).isoformat()
    return limits


def _list_of(path: Path) -> str:
    stem = re.sub(r"[^a-z]", "", path.stem.lower())
    for start, name in LISTS.items():
        if stem.startswith(start):
            return name
    raise OperatorError(
        f"{path.name} is not named after a code list: {', '.join(sorted(set(LISTS.values())))}."
    )


def read_codes(path: Path) -> list[dict[str, str]]:
    """Return the codes of a file. Raises OperatorError.

    It is a JSON array of objects with a code and a name or description, as the authority publishes
    it, and optionally with the days `valid_from` and `valid_to`.
    """
    try:
        rows = json_codec.loads(path.read_bytes())
        if not isinstance(rows, list):
            raise TypeError("not an array")
        entries = [_entry({name.lower(): value for name, value in row.items()}) for row in rows]
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise OperatorError(
            f"{path} is not a JSON array of codes ({type(error).__name__}: {error})."
        ) from None
    return list({entry["code"]: entry for entry in entries}.values())


def _entry(row: JsonMapping) -> dict[str, str]:
    """Return {code, description} and days from the member names of the published files."""
    code = row.get("code", row.get("id"))
    if not isinstance(code, str) or not 0 < len(code) <= 100 or not json_codec.is_valid_text(code):
        raise TypeError("a code is not a string of 1 to 100 characters")
    texts = [
        value
        for name, value in row.items()
        if name.startswith(("name", "desc", "state", "country", "currency", "unit", "msic"))
        and isinstance(value, str)
    ]
    description = texts[0] if texts else ""
    if not json_codec.is_valid_text(description):
        raise TypeError("a description has NUL or an unpaired surrogate")
    return {"code": code, "description": description, **_read_days(row)}


def _read_days(row: JsonMapping) -> dict[str, str]:
    """Return the days of validity that a row has. Raises ValueError."""
    days: dict[str, str] = {}
    for name in ("valid_from", "valid_to"):
        if row.get(name) is not None:
            days[name] = date.fromisoformat(row[name]).isoformat()
    if len(days) == 2 and days["valid_from"] > days["valid_to"]:
        raise ValueError("valid_from is after valid_to")
    return days
