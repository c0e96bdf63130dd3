"""The uuids in the portal's rejections of duplicates, which may be another company's."""

import re
from typing import TypedDict

from service.db.connections import Connection
from service.db.statements import sql
from service.submission.context import SubmissionContext
from service.submission.machine.types import Error

#: The portal's codes for a document whose identity it has validated before. Portal: 14.8
DUPLICATE_CODES = {"DV302", "DS302"}
ANOTHER = "another document"  # replaces a uuid that may be another company's
_UUID = re.compile(r"\b(?=[A-Za-z]*[0-9])[0-9A-Za-z]{10,64}\b", re.ASCII)


class RecordedRow(TypedDict):
    """A row of uuids_recorded."""

    uuid: str
    own_submission: int | None  # null for another company's document


async def read_recorded(
    conn: Connection, company_id: int, uuids: list[str]
) -> dict[str, int | None]:
    """Return {recorded uuid: submission of the company, or None for another company's}."""
    rows: list[RecordedRow] = await sql.uuids_recorded(conn, company=company_id, uuids=uuids)
    return {row["uuid"]: row["own_submission"] for row in rows}


async def mask_foreign_uuids(
    context: SubmissionContext, company_id: int, tin: str, errors: list[Error]
) -> list[Error]:
    """Remove uuids that may be another company's from the errors."""
    uuids = extract_uuids(errors)
    if not uuids:
        return errors
    async with context.database.reading(company_id) as conn:
        recorded = await read_recorded(conn, company_id, uuids)
        is_shared = await sql.tin_is_shared(conn, company=company_id, own_tin=tin)
    foreign = [
        uuid for uuid in uuids if recorded.get(uuid) is None and (is_shared or uuid in recorded)
    ]
    return [{**error, "message": _mask(error["message"], foreign)} for error in errors]


def _mask(message: str, uuids: list[str]) -> str:
    for uuid in uuids:
        message = message.replace(uuid, ANOTHER)
    return message


def extract_uuids(errors: list[Error]) -> list[str]:
    """Return the uuids that rejections of duplicates name, each once."""
    texts = [error["message"] for error in errors if error["code"] in DUPLICATE_CODES]
    return list(dict.fromkeys(_UUID.findall(" ".join(texts))))
