"""Companies, their TINs and keys from the command line; each command returns a dict that is printed as one JSON object."""

import json
from datetime import datetime
from typing import Any

from asyncpg import Connection

from service import json_codec, schema
from service.commands.bootstrap import with_database
from service.config import Config
from service.db.statements import sql
from service.db.transactions import Database
from service.documents import codes
from service.documents.ubl import parties
from service.http import api_keys

#: The columns of a company that add-company takes beside its name and TIN.
DETAILS = (
    "registration_number",
    "registration_type",
    "sst_registration_number",
    "tourism_tax_registration_number",
    "business_activity_description",
    "msic_code",
    "country",
    "state",
    "zip_code",
    "city",
    "address",
    "phone",
    "email",
)


#: No company has this id: a transaction of it sees no company's rows.
NO_COMPANY = 0


class CommandError(Exception):
    """What a person can mend; printed as it is."""


async def add_company(config: Config, **facts: str | None) -> dict[str, int]:
    """Make a company with a verified TIN and return {id}. `facts` are name, tin_code and any of DETAILS.

    Raises CommandError for what PUT /api/companies refuses too.
    """
    async with with_database(config) as (config, database):
        return {"id": await insert_company(database, facts)}


async def insert_company(database: Database, facts: dict[str, str | None]) -> int:
    """Insert a company and return its id. Raises CommandError for invalid facts."""
    _refuse_faults({name: value for name, value in facts.items() if value is not None})
    async with database.across() as conn:
        company_id = await sql.company_id_next(conn)
    values = {name: facts.get(name) for name in ("name", "tin_code", *DETAILS)}
    async with database.company(company_id) as conn:
        return await sql.company_insert(conn, company_id=company_id, **values)


def _refuse_faults(facts: dict[str, str]) -> None:
    """Raise CommandError, with every violation, for facts that PUT /api/companies refuses."""
    faults = schema.violations("company_update", facts)
    reported = {fault["path"] for fault in faults}
    faults += [
        fault for fault in codes.violations(facts, codes.COMPANY) if fault["path"] not in reported
    ]
    if faults:
        raise CommandError(" ".join(fault["message"] for fault in faults))


async def verify_tin(
    config: Config, company_id: int, expected: str | None = None
) -> dict[str, Any]:
    """Verify the TIN of a company and return {company_id, tin, tin_verified_at}.

    Raises CommandError for an unknown company, one without a TIN, or one whose TIN is not the `expected` one.
    """
    async with with_database(config) as (config, database), database.company(company_id) as conn:
        row = await sql.company_tin_lock(conn, company_id=company_id)
        if row is None:
            raise CommandError(f"There is no company {company_id}.")
        if not row["tin"]:
            raise CommandError(f"Company {company_id} has no TIN.")
        if expected is not None and parties.own_tin({"tin": expected}) != row["tin"]:
            raise CommandError(
                f"The TIN of company {company_id} is {row['tin_code']}, not {expected}."
            )
        verified_at = (
            await sql.company_tin_verify(conn, company_id=company_id) or row["tin_verified_at"]
        )
        return {
            "company_id": company_id,
            "tin": row["tin_code"],
            "tin_verified_at": _write_instant(verified_at),
        }


async def share_tin(config: Config, tin: str, note: str) -> dict[str, Any]:
    """Allow several companies to have a TIN and return {tin, note, shared_at, companies}. Raises CommandError.

    The audit log of each company that has it gets a row.
    """
    wanted = _read_tin(tin)
    if not note.strip():
        raise CommandError("A note is required: why the TIN is shared.")
    async with with_database(config) as (config, database):
        companies = await _find_companies(database, wanted)
        for company_id in companies or [None]:
            async with database.company(company_id or NO_COMPANY) as conn:
                await sql.tin_lock(conn, tin=wanted)
                row = await sql.tin_share(conn, company_id=company_id, tin=wanted, note=note)
    shared_at = _write_instant(row["shared_at"])
    return {"tin": row["tin"], "note": row["note"], "shared_at": shared_at, "companies": companies}


async def unshare_tin(config: Config, tin: str) -> dict[str, Any]:
    """Return a shared TIN to its one company, and return {tin, unshared}; `unshared` is false if it was not shared.

    Raises CommandError while several companies have it.
    """
    wanted = _read_tin(tin)
    async with with_database(config) as (config, database):
        holders = await _find_companies(database, wanted)
        company_id = holders[0] if holders else None
        async with database.company(company_id or NO_COMPANY) as conn:
            await sql.tin_lock(conn, tin=wanted)
            await _refuse_several(conn, wanted)
            unshared = await sql.tin_unshare(conn, company_id=company_id, tin=wanted)
    return {"tin": wanted, "unshared": unshared is not None}


async def _refuse_several(conn: Connection, tin: str) -> None:
    """Raise CommandError if several companies have the TIN, which is locked."""
    holders = await sql.tin_companies(conn, tin=tin)
    if len(holders) > 1:
        raise CommandError(
            f"Companies {', '.join(map(str, holders))} have the TIN {tin}; it can be of one only."
        )


async def _find_companies(database: Database, tin: str) -> list[int]:
    async with database.across() as conn:
        return await sql.tin_companies(conn, tin=tin)


def _read_tin(text: str) -> str:
    """Return a TIN as it is compared. Raises CommandError for what cannot be one."""
    if schema.violations("company_update", {"tin_code": text}):
        raise CommandError(f"{text!r} is not a TIN: letters and digits, like C20880050010.")
    return parties.own_tin({"tin": text})


async def add_key(config, company, name="", expires=None):
    """{key, key_id, company_id}; the key is not stored and cannot be shown again. Raises CommandError."""
    async with with_database(config) as (config, database):
        return await insert_key(config, database, company, name, read_instant(expires))


async def insert_key(config, database, company, name, expires_at=None):
    key = api_keys.new_key(live=bool(config.portal_api_base))
    async with database.company(company) as conn:
        if not await sql.company_exists(conn, company_id=company):
            raise CommandError(f"There is no company {company}.")
        await sql.api_key_insert(
            conn,
            company_id=company,
            key_id=key.key_id,
            name=name,
            secret_sha256=key.digest,
            expires_at=expires_at,
        )
    return {"key": key.text, "key_id": key.key_id, "company_id": company}


async def revoke_key(config, key_id):
    """{key_id, revoked}, of a key of any kind; `revoked` is false when it no longer worked before. Raises CommandError."""
    async with with_database(config) as (config, database):
        kind, owner = await _key_owner(database, key_id)
        async with kind.transaction(database, owner) as conn:
            revoked = await kind.revoke(conn, key_id=key_id, **{kind.owner: owner})
        return {"key_id": key_id, "revoked": bool(revoked)}


async def _key_owner(database, key_id):
    async with database.across() as conn:
        for kind in (api_keys.COMPANY, api_keys.INTEGRATION):
            if row := await kind.find(conn, key_id=key_id):
                return kind, row[kind.owner]
    raise CommandError(
        f"There is no key {key_id}; a key id is the 12 characters after einv_live_ or einp_live_."
    )


def printed(result):
    return json.dumps(result)


def read_instant(text):
    """The instant that an option names, None where it is not given. Raises CommandError."""
    if text is None:
        return None
    try:
        return json_codec.parse_instant(text)
    except ValueError:
        raise CommandError(f"{text} is not a date and a time, like 2026-12-31T23:59:59Z.") from None


def _write_instant(at: datetime) -> str:
    """Return an instant as the API writes it."""
    return at.isoformat(timespec="milliseconds")
