"""Companies and keys from the command line; each command gives a dict that is printed as one JSON object."""

import json
import re

from service import keys, wire
from service.commands.ground import with_database
from service.statements import sql

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


TIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 -]{0,39}", re.ASCII)  # it goes into a header of the portal's login


class CommandError(Exception):
    """What a person can mend; printed as it is."""


async def add_company(config, **facts):
    """{id}. `facts` are name, tin_code and any of DETAILS."""
    async with with_database(config) as (config, database):
        return {"id": await insert_company(database, facts)}


async def insert_company(database, facts):
    if not TIN.fullmatch(facts["tin_code"]):
        raise CommandError(f"{facts['tin_code']!r} is no TIN: letters and digits, like C20880050010.")
    async with database.across() as conn:
        id = await sql.company_id_next(conn)
    values = {name: facts.get(name) for name in ("name", "tin_code", *DETAILS)}
    async with database.company(id) as conn:
        return await sql.company_insert(conn, company_id=id, **values)


async def add_key(config, company, name="", expires=None):
    """{key, key_id, company_id}; the key is not stored and cannot be shown again. Raises CommandError."""
    async with with_database(config) as (config, database):
        return await insert_key(config, database, company, name, read_instant(expires))


async def insert_key(config, database, company, name, expires_at=None):
    key = keys.new_key(live=bool(config.portal_api_base))
    async with database.company(company) as conn:
        if not await sql.company_exists(conn, company_id=company):
            raise CommandError(f"There is no company {company}.")
        await sql.api_key_insert(
            conn, company_id=company, key_id=key.key_id, name=name, secret_sha256=key.digest, expires_at=expires_at
        )
    return {"key": key.text, "key_id": key.key_id, "company_id": company}


async def revoke_key(config, key_id):
    """{key_id, revoked}, of a key of any kind; `revoked` is false when it no longer worked before. Raises CommandError."""
    async with with_database(config) as (config, database):
        kind, owner = await _key_owner(database, key_id)
        async with kind.wall(database, owner) as conn:
            revoked = await kind.revoke(conn, key_id=key_id, **{kind.owner: owner})
        return {"key_id": key_id, "revoked": bool(revoked)}


async def _key_owner(database, key_id):
    async with database.across() as conn:
        for kind in (keys.COMPANY, keys.INTEGRATION):
            if row := await kind.of(conn, key_id=key_id):
                return kind, row[kind.owner]
    raise CommandError(f"There is no key {key_id}; a key id is the 12 characters after einv_live_ or einp_live_.")


def printed(result):
    return json.dumps(result)


def read_instant(text):
    """The instant that an option names, None where it is not given. Raises CommandError."""
    if text is None:
        return None
    try:
        return wire.instant(text)
    except ValueError:
        raise CommandError(f"{text} is not a date and a time, like 2026-12-31T23:59:59Z.") from None
