"""Companies, their TINs, keys and audit log."""

from collections.abc import Collection
from datetime import UTC, datetime

from service import json_codec, schema
from service.commands.command_line import CommandLine
from service.config import Config
from service.db.cells import claim_tin
from service.db.statements import sql
from service.db.transactions import Database, Owner
from service.documents import codes
from service.documents.ubl import parties
from service.errors import OperatorError, Violation
from service.http import api_keys
from service.json_types import JsonObject

#: The columns of a company that add-company sets: name, TIN, and optional ones.
FACTS = sql.company_insert.variables[1:]
#: The id of no company: its transactions see no rows of a company.
NO_COMPANY = 0


def register(line: CommandLine) -> None:
    parser = line.add("add-company", add_company)
    for name in FACTS[2:]:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="TEXT")
    line.add("verify-tin", verify_tin)
    line.add("share-tin", share_tin)
    line.add("unshare-tin", unshare_tin)
    line.add("add-key", add_key)
    line.add("revoke-key", revoke_key)
    line.add("audit", _print_audit)


async def require_company(database: Database, company_id: int) -> None:
    """Raise OperatorError if there is no such company."""
    async with database.company(company_id) as conn:
        if await sql.issuer_get(conn) is None:
            raise OperatorError(f"There is no company {company_id}.")


async def find_comparable_companies(database: Database) -> list[int]:
    """Return the ids of the companies that can send, or have sent."""
    return [row["company_id"] for row in await database.call(sql.sending_companies)]


async def add_company(config: Config, database: Database, **facts: str | None) -> dict[str, int]:
    """Create a company with a verified TIN and print its id.

    Validates like `PUT /api/companies`.
    """
    given = {name: value for name, value in facts.items() if value is not None}
    found = (
        *codes.find_violations(given, codes.COMPANY),
        *schema.find_violations("company_update", given),
    )
    # Each member is reported once.
    reject_violations({each["path"]: each for each in found}.values())
    claim_tin(config.cell_registry, parties.normalize_tin(facts["tin_code"]), config.cell)
    company_id = await database.call(sql.owner_id_next, owners="companies")
    values = {name: facts.get(name) for name in FACTS}
    async with database.company(company_id) as conn:
        await sql.company_insert(conn, **values)
    return {"id": company_id}


def reject_violations(found: Collection[Violation]) -> None:
    if found:
        raise OperatorError(" ".join(violation["message"] for violation in found))


async def verify_tin(
    config: Config, database: Database, company_id: int, tin: str | None = None
) -> JsonObject:
    """Confirm a company's TIN.

    Fails if it is verified for another company and not shared. With `--tin`, fails if the company
    has another TIN by now.
    """
    async with database.company(company_id) as conn:
        stored = await sql.company_lock(conn)
        row = await sql.issuer_get(conn)
        own = parties.normalize_tin(row["tin_code"])
        if not own:
            raise OperatorError(f"Company {company_id} has no TIN.")
        if tin is not None and parties.normalize_tin(tin) != own:
            raise OperatorError(f"The TIN of company {company_id} is {row['tin_code']}, not {tin}.")
        claim_tin(config.cell_registry, own, config.cell)
        verified_at = row["tin_verified_at"] or await sql.company_update(
            conn, verifies_tin=True, action="verify", subject=f"TIN {own}", **stored
        )
        return {"company_id": company_id, "tin": row["tin_code"], "tin_verified_at": verified_at}


async def share_tin(config: Config, database: Database, tin: str, note: str) -> JsonObject:
    """Allow several companies to use a TIN."""
    wanted = _read_tin(tin)
    companies = await _find_companies(database, wanted)
    shared: JsonObject = {}
    for company_id in companies or [None]:
        async with database.company(company_id or NO_COMPANY) as conn:
            await sql.lock_tin(conn, tin=wanted)
            shared = await sql.tin_share(conn, company_id=company_id, tin=wanted, note=note)
    return {**shared, "companies": companies}


async def unshare_tin(config: Config, database: Database, tin: str) -> JsonObject:
    """Allow only one company to use a TIN again. Fails while it is verified for several."""
    wanted = _read_tin(tin)
    holders = await _find_companies(database, wanted)
    company_id = holders[0] if holders else None
    async with database.company(company_id or NO_COMPANY) as conn:
        await sql.lock_tin(conn, tin=wanted)
        holders = await sql.companies_of_tin(conn, wanted=wanted)
        if len(holders) > 1:
            raise OperatorError(
                f"Companies {', '.join(map(str, holders))} have the TIN {wanted}; "
                "only one may have it."
            )
        unshared = await sql.tin_unshare(conn, company_id=company_id, tin=wanted)
    return {"tin": wanted, "unshared": unshared is not None}


async def _find_companies(database: Database, tin: str) -> list[int]:
    return await database.call(sql.companies_of_tin, wanted=tin)


def _read_tin(text: str) -> str:
    """Return a TIN in the form that is compared. Raises OperatorError for invalid ones."""
    if schema.find_violations("company_update", {"tin_code": text}):
        raise OperatorError(f"{text!r} is not a TIN: letters and digits, like C20880050010.")
    return parties.normalize_tin(text)


async def add_key(
    config: Config, database: Database, company_id: int, name: str = "", expires: str | None = None
) -> JsonObject:
    """Create an API key and print it, once."""
    expires_at = read_expiry(expires)
    async with database.company(company_id) as conn:
        key = api_keys.new_key(live=config.has_live_portal, cell=config.cell)
        await api_keys.insert_key(conn, key, name, expires_at)
    return {"key": key.text, "key_id": key.key_id, "company_id": company_id}


async def revoke_key(config: Config, database: Database, key_id: str) -> JsonObject:
    """Revoke a key of a company or an account.

    It stops working in every process within a second.
    """
    owner = await _find_key_owner(database, key_id)
    async with database.owned(owner) as conn:
        revoked = await sql.api_key_revoke(conn, key_id=key_id)
    return {"key_id": key_id, "revoked": bool(revoked)}


async def _find_key_owner(database: Database, key_id: str) -> Owner:
    for kind in api_keys.KINDS:
        if row := await database.call(sql.api_key_get, owner_kind=kind.owner, key_id=key_id):
            return Owner(kind.owner, row["owner_id"])
    raise OperatorError(
        f"There is no key {key_id}; "
        "a key id is what follows einv_live_ or einp_live_, up to the next underscore."
    )


def read_expiry(text: str | None) -> datetime | None:
    """Return the future instant of --expires, or None without it. Raises OperatorError."""
    if text is None:
        return None
    try:
        expires_at = json_codec.parse_instant(text)
    except ValueError:
        raise OperatorError(
            f"{text} is not a date and a time, like 2026-12-31T23:59:59Z."
        ) from None
    if expires_at <= datetime.now(UTC):
        raise OperatorError("--expires must be in the future.")
    return expires_at


async def _print_audit(config: Config, database: Database, company_id: int, most: int) -> None:
    """Print the audit log of a company, one JSON object per line: documents, e-invoice requests,
    keys, settings, roles, certificates, webhooks, with old and new values.
    """
    rows = await database.read(sql.audit_page, company_id=company_id, most=most)
    for row in rows:
        print(row["entry"])
