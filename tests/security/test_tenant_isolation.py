"""Tenant isolation: the owner condition of each statement, and row-level security.

The service refuses to start with a gap in row-level security. Companies and accounts stay isolated
on every route without the conditions, and without the policies. Without both they do not, which
shows that the tests would detect it.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from service.config import read_config
from service.db import statements
from service.db.compatibility import SchemaError, check_tenant_isolation
from service.db.connections import Connection, connect
from service.db.pool import SERVICE_ROLE, Pool, connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from tests.api.test_validations import TIN
from tests.api_invoices import create_delivery, create_invoice, create_one_of_each
from tests.api_reads import get_documents
from tests.api_requests import (
    CERTIFICATE,
    INTEGRATIONS,
    KEYLESS,
    PORTAL_CREDENTIALS,
    create_integration_records,
    create_record,
    expect,
    fill_path,
    insert_rows_of_comparisons,
    list_routes,
    make_account,
    open_integrations,
    place_of,
    request_json,
)
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.bodies import invoice, last_month, note, now
from tests.harness.certificates import issued
from tests.harness.environments import GENEROUS
from tests.harness.visitors import make_person

# Gaps in tenant isolation

OWN_AGAIN = "create policy own_rows on documents for select to einvoice_service"
DEFINER = "language sql security definer set search_path = pg_catalog return 1"

#: An error at the start -> the gaps in tenant isolation that it names.
GAPS: dict[str, list[str]] = {
    "the table documents has no forced policy": [
        "alter table documents no force row level security",
        "alter table documents disable row level security",
        "alter policy own_rows on documents using (true)",
        "alter policy own_rows on documents with check (true)",
        f"drop policy own_rows on documents; {OWN_AGAIN} using (company_id = current_company())",
    ],
    "the table companies has no forced policy": [
        "alter table companies no force row level security",
        "alter policy own_rows on companies using (id > 0)",
    ],
    "the table idempotency_keys has no forced policy": [
        "alter table idempotency_keys disable row level security",
        "alter policy own_rows on idempotency_keys using (owner_id = current_company())",
    ],
    "the table accounts has no forced policy": ["alter table accounts no force row level security"],
    "the table events has no forced policy": ["drop policy own_rows on events"],
    "the table webhook_secrets has no forced policy": ["drop policy own_rows on webhook_secrets"],
    "the table organization_members has no forced policy": [
        "drop policy own_rows on organization_members"
    ],
    "the table audit_log has no forced policy": [
        "alter policy own_rows on audit_log with check (account_id = current_account())"
    ],
    "the table organization_companies has no forced policy": [
        "alter policy own_rows on organization_companies using (company_id = current_company())"
    ],
    "the table leaks has no forced policy": [
        "create table leaks (company_id bigint)",
        "create table leaks (account_id bigint)",
        "create table leaks (company_id bigint) partition by hash (company_id)",
    ],
    "the policy open opens the table documents": ["create policy open on documents using (true)"],
    "the policy open opens the table integration_users": [
        "create policy open on integration_users using (true)"
    ],
    "the view invoice_records does not use its caller's rights": [
        "alter view invoice_records reset (security_invoker)"
    ],
    "the view organization_records does not use its caller's rights": [
        "alter view organization_records reset (security_invoker)"
    ],
    "the view leaks does not use its caller's rights": [
        "create view leaks as select * from documents",
        "create materialized view leaks as select * from documents;"
        f" grant select on leaks to {SERVICE_ROLE}",
    ],
    f"the role {SERVICE_ROLE} owns the table events": [
        f"alter table events owner to {SERVICE_ROLE}"
    ],
    f"the role {SERVICE_ROLE} may bypass row-level security": [
        f"alter role {SERVICE_ROLE} bypassrls",
        f"alter role {SERVICE_ROLE} superuser",
        f"alter role {SERVICE_ROLE} createrole",
    ],
    f"the role {SERVICE_ROLE} is a member of einvoice_across": [
        f"grant einvoice_across to {SERVICE_ROLE}"
    ],
    f"the role {SERVICE_ROLE} is a member of landlord": [
        f"create role landlord; grant landlord to {SERVICE_ROLE}"
    ],
    f"the role {SERVICE_ROLE} may truncate the table documents": [
        f"grant truncate on documents to {SERVICE_ROLE}"
    ],
    f"the role {SERVICE_ROLE} may truncate the table events": [
        "grant truncate on events to public"
    ],
    "current_company(), current_account() or current_owner() has a value without a setting": [
        "create or replace function current_company() returns bigint stable language sql"
        " return 1::bigint",
        "create or replace function current_owner(kind text) returns bigint stable language sql"
        " return 1::bigint",
    ],
    "the function leaks runs with another's rights and these": [
        f"create function leaks() returns int {DEFINER}"
    ],
    "the function api_key_get runs with another's rights and anybody may call it": [
        "grant execute on function api_key_get to public"
    ],
    "the function claim_submissions runs with another's rights and uses the caller's search path"
    " or temporary tables": [
        "alter function claim_submissions reset search_path",
        "alter function claim_submissions set search_path = pg_catalog, public",
    ],
    "the unique index anyones of documents does not begin with company_id": [
        "create unique index anyones on documents (code)"
    ],
    "the unique index anyones of organizations does not begin with account_id": [
        "alter table organizations add constraint anyones unique (email)"
    ],
    "the unique index anyones of idempotency_keys does not begin with owner_kind, owner_id": [
        "create unique index anyones on idempotency_keys (owner_id, owner_kind, key)"
    ],
    "the foreign key leaks_owner_id_key_id_fkey of leaks leaves out owner_kind, owner_id": [
        "alter table api_keys add constraint anyones unique (owner_id, key_id);"
        " create table leaks (owner_id bigint, key_id text,"
        " foreign key (owner_id, key_id) references api_keys (owner_id, key_id))"
    ],
    "the foreign key leaks_invoice_id_fkey of leaks leaves out company_id": [
        "alter table documents add constraint anyones unique (id);"
        " create table leaks (invoice_id bigint references documents (id))"
    ],
    "the foreign key leaks_owner_fkey of leaks leaves out company_id": [
        "create table leaks (owner bigint references companies)"
    ],
}


async def test_each_gap_in_tenant_isolation_is_named(owner: asyncpg.Connection) -> None:
    """Each gap exists in one transaction only, because roles are shared by all databases."""
    for name, gaps in GAPS.items():
        for gap in gaps:
            assert name in await _check(owner, gap), gap


#: Objects of an extension, such as pg_stat_statements, which every server has.
EXTENSION_OBJECTS = (
    "create view statistics as select 1 as calls; alter extension plpgsql add view statistics",
    "create materialized view statistics as select 1 as calls;"
    f" grant select on statistics to {SERVICE_ROLE};"
    " alter extension plpgsql add materialized view statistics",
    f"create function statistics() returns int {DEFINER};"
    " alter extension plpgsql add function statistics()",
    "create table statistics (company_id bigint); alter extension plpgsql add table statistics",
)


@pytest.mark.parametrize("objects", EXTENSION_OBJECTS)
async def test_objects_of_an_extension_are_no_gap(owner: asyncpg.Connection, objects: str) -> None:
    assert await _check(owner, objects) == "nothing"


async def test_the_service_starts_with_pg_stat_statements(
    owner: asyncpg.Connection, start: StartService
) -> None:
    if not await owner.fetchval(
        "select 1 from pg_available_extensions where name = 'pg_stat_statements'"
    ):
        pytest.skip("PostgreSQL has no contrib modules.")
    await owner.execute("create extension pg_stat_statements schema public")
    api = await start()
    assert (await api.get("/api/invoices")).status == 200


@pytest.mark.parametrize(
    "gap, cure",
    [
        ("create view leaks as select 1 as one", "alter view leaks set schema another_schema"),
        (
            "create materialized view leaks as select 1 as one;"
            f" grant select on leaks to {SERVICE_ROLE}",
            "alter materialized view leaks set schema another_schema",
        ),
        (
            f"create function leaks(n int) returns int {DEFINER}",
            "alter function leaks(integer) set schema another_schema",
        ),
    ],
)
async def test_the_error_about_a_foreign_object_has_its_cure(
    owner: asyncpg.Connection, gap: str, cure: str
) -> None:
    assert cure in await _check(owner, gap)


async def _check(owner: asyncpg.Connection, gap: str) -> str:
    """Return the error of the check for a gap, and undo the gap."""
    undo = owner.transaction()
    await undo.start()
    try:
        await owner.execute(gap)
        await owner.execute(f"set local role {SERVICE_ROLE}")
        await check_tenant_isolation(owner)
    except SchemaError as refusal:
        return str(refusal)
    finally:
        await undo.rollback()
    return "nothing"


async def test_the_migrated_schema_separates_companies_and_accounts(database: str) -> None:
    async with connected_pool(database, 1) as pool, Database(pool).across() as conn:
        await check_tenant_isolation(conn)


#: A table or view that a statement reads or changes, and its alias.
REFERENCE = re.compile(
    r"\b(?:from|join|update)\s+(\w+)"
    r"(?:\s+(?:as\s+)?"
    r"(?!(?:set|where|on|join|left|cross|order|group|limit|for|returning|union|using)\b)(\w+))?"
)


async def test_every_statement_names_the_owner_of_each_table(owner: asyncpg.Connection) -> None:
    """Each statement compares the owner columns of each tenant table or view with the owner."""
    columns = await owner.fetch(
        """
        select table_name, bool_or(column_name = 'owner_kind') as is_shared,
               max(column_name) filter (where column_name !~ '^owner') as owner_column
          from information_schema.columns
         where table_schema = 'public'
           and column_name in ('company_id', 'account_id', 'owner_kind', 'owner_id')
         group by table_name
        """
    )
    tenants = {
        row["table_name"]: ("owner_kind", "owner_id") if row["is_shared"] else [row["owner_column"]]
        for row in columns
    }
    open_ones = [
        (name, table)
        for name, statement in sql.by_name.items()
        for table, alias in REFERENCE.findall(re.sub(r"--[^\n]*", "", statement.text))
        for column in tenants.get(table, ())
        if not _names_owner(statement.text, column, alias)
    ]
    assert open_ones == []


def _names_owner(text: str, column: str, alias: str) -> bool:
    """Return whether a statement compares the owner column of a table or of its alias."""
    column = column if column != "account_id" else "(?:account|company)_id"
    qualified = (
        rf"\b{alias}\.{column} = |= {alias}\.{column}\b" if alias else rf"(?<![\w.]){column} = :"
    )
    return re.search(rf"{qualified}|(?<![\w.]){column} = :", text) is not None


async def test_the_service_does_not_start_with_a_gap_in_its_isolation(
    owner: asyncpg.Connection, start: StartService
) -> None:
    await owner.execute("alter table organization_members no force row level security")
    with pytest.raises(SchemaError, match="the table organization_members has no forced policy"):
        await start()


async def test_the_service_does_not_run_as_a_superuser(database: str) -> None:
    conn = await connect(database, {})
    try:
        with pytest.raises(SchemaError, match="may bypass row-level security"):
            await check_tenant_isolation(conn)
    finally:
        await conn.close()


# Each defence alone


#: The column of the owner: the table of owners, and the transaction that sees the rows of one.
OWNERS = {
    "company_id": ("companies", Database.company),
    "account_id": ("accounts", Database.account),
}
#: The condition on the owner in the statements, and its replacement with the same variable.
PREDICATE = re.compile(
    r"(?:\b\w+\.)?\b(?:company_id|company|account_id|owner_id|id)"
    r" = :(company_id|account_id|owner_id)\b(?:::bigint)?"
    r"|(?:\b\w+\.)?\bowner_kind = (?::owner_kind|'company')"
)


def _everybody(condition: re.Match[str]) -> str:
    if condition[1]:
        return f"(:{condition[1]}::bigint is not null)"
    return "true" if "'" in condition[0] else "(:owner_kind::text is not null)"


@contextmanager
def without_predicates() -> Iterator[None]:
    """Remove the condition on the owner from all statements."""
    stripped, as_written = {}, statements.Statement._run
    for name, statement in sql.by_name.items():
        text = PREDICATE.sub(_everybody, statement.text)
        assert not re.search(r"= :(company_id|account_id|owner_id|owner_kind)\b", text), name
        stripped[name] = statements._statement(name, statement.kind, text)

    async def run(
        statement: statements.Statement, conn: Connection, query: str, values: Mapping[str, Any]
    ) -> Any:
        other = stripped[statement.name]
        query = other.query if query == statement.query else other.isolated
        return await as_written(other, conn, query, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements.Statement, "_run", run)
        yield


async def without_policies(owner: asyncpg.Connection) -> None:
    """Disable row-level security on all tables after the service has started."""
    for table in {"companies", "accounts"}.union(
        *[await _tenant_tables(owner, column) for column in OWNERS]
    ):
        await owner.execute(
            f"alter table {table} no force row level security, disable row level security"
        )


@dataclass(frozen=True, slots=True)
class Tenant:
    """A company and an account: a client, the ids of their records by place, keyed requests."""

    api: Client
    company: int
    account: int
    ids: dict[str, Any]
    keyed: dict[str, dict[str, Any]] = field(default_factory=dict)


async def create_tenant(
    start: StartService, environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> Tenant:
    """Create a tenant with a row in every tenant table."""
    api = await start(company, **GENEROUS)
    account = await open_integrations(api, environment)
    ids = {
        **await create_one_of_each(api),
        **await create_integration_records(api, environment, account, company.id),
    }
    ids["delivery"] = await create_delivery(api, ids["/api/webhooks"])
    ids["document"] = (await get_documents(api, ids["/api/invoices"]))[0]["id"]
    webhook = f"/api/webhooks/{ids['/api/webhooks']}"
    # Stop the deliveries, so that the rows do not change any more.
    await expect(api, 200, "PUT", webhook, json={"enabled": False})
    await until(
        lambda: owner.fetchval(
            "select count(*) = 0 from webhook_deliveries where lease_until is not null"
        )
    )
    person = {"name": "Siti", "email": "siti@example.com", "role": "member"}
    bodies = {"/api/invoices": invoice(code=4711), f"{INTEGRATIONS}users": person}
    keyed = {
        path: {"json": body, "headers": {"Idempotency-Key": "4711"}}
        for path, body in bodies.items()
    }
    for path, request in keyed.items():
        await expect(api, 201, "POST", path, **request)
    await expect(api, 200, "POST", "/api/validation/tin", json=TIN)
    await expect(api, 200, "PUT", CERTIFICATE, json=issued().pair)
    credentials = {"client_id": "sandbox-client", "client_secret": "sandbox-secret"}
    await expect(api, 200, "PUT", PORTAL_CREDENTIALS, json=credentials)
    await make_person(read_config(environment), company.id, "siti@example.com", "owner")
    await owner.execute(
        "insert into document_links"
        " (company_id, token_sha256, purpose, kind, document_id, expires_at)"
        " values ($1, $2, 'view', 'invoice', $3, now() + interval '1 day')",
        company.id,
        b"token",
        ids["/api/invoices"],
    )
    await owner.execute(
        "insert into key_quotas (owner_kind, owner_id, key_id, ends_at, used)"
        " select owner_kind, owner_id, key_id, now(), 0 from api_keys on conflict do nothing"
    )
    await insert_rows_of_comparisons(owner)
    return Tenant(api=api, company=company.id, account=account, ids=ids, keyed=keyed)


@pytest.fixture
async def tenant(
    start: StartService, environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> Tenant:
    return await create_tenant(start, environment, company, owner)


@pytest.fixture
async def stranger(environment: dict[str, str], start: StartService) -> Tenant:
    """Another tenant with some records."""
    company = await make_company(environment)
    api = await start(company, background=False, **GENEROUS)
    account = await open_integrations(api, environment, "Ipoh Holdings")
    webhook = await create_record(api, "/api/webhooks", url="http://127.0.0.1:9/", enabled=False)
    ids = {"/api/invoices": await create_invoice(api), "/api/webhooks": webhook["id"]}
    ids |= await create_integration_records(api, environment, account, company.id)
    return Tenant(api=api, company=company.id, account=account, ids=ids)


@pytest.mark.parametrize("remaining", ["policies", "predicates"])
async def test_policies_or_predicates_alone_isolate_tenants_on_every_route(
    stranger: Tenant,
    start: StartService,
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    remaining: str,
) -> None:
    before = await listed(stranger.api)
    tenant = await create_tenant(start, environment, company, owner)
    rows, sent = await rows_of(owner, tenant), await sandbox.ledger()
    with without_predicates() if remaining == "policies" else nullcontext():
        if remaining == "predicates":
            await without_policies(owner)
        after = await listed(stranger.api)
        assert {
            path: (before[path], answer) for path, answer in after.items() if answer != before[path]
        } == {}
        assert await find_leaks(stranger, tenant) == []
        await check_bodies(stranger, tenant)
    assert await rows_of(owner, tenant) == rows
    assert await sandbox.ledger() == sent


async def test_without_policies_and_predicates_tenants_are_not_isolated(
    stranger: Tenant,
    start: StartService,
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
) -> None:
    before = await listed(stranger.api)
    tenant = await create_tenant(start, environment, company, owner)
    with without_predicates():
        await without_policies(owner)
        after = await listed(stranger.api)
        leaks = {path for _, path in await find_leaks(stranger, tenant, "GET")}
    seen = {path for path, answer in after.items() if answer != before[path]}
    assert {
        "/api/invoices",
        "/api/events",
        "/api/invoices/export-all",
        f"{INTEGRATIONS}users",
    } <= seen
    gets = {path for _, path in list_routes(stranger.api, "GET") if "{id}" in path}
    assert len(gets) > 20 and leaks == gets


#: Headers that differ between the responses to equal requests.
EACH_TIME = {"x-request-id", "date", "x-ratelimit-remaining", "x-ratelimit-reset"}
SEARCHES = ("", "?query=4711", "?query=Aminah", "?query=Nurul")


#: Status, headers and body.
Response = tuple[int, dict[str, str], bytes]


async def send(api: Client, method: str, path: str, **request: Any) -> Response:
    """Send a request and return the complete response."""
    async with api.request(method, path, **request) as response:
        headers = {
            name: value for name, value in response.headers.items() if name.lower() not in EACH_TIME
        }
        return response.status, headers, await response.read()


async def listed(api: Client) -> dict[str, Response]:
    """Return {path: response} of all GET requests without an id."""
    paths = [path for _, path in list_routes(api, "GET") if "{" not in path and path not in KEYLESS]
    assert len(paths) > 12
    return {
        path + query: await send(api, "GET", path + query) for path in paths for query in SEARCHES
    }


async def find_leaks(stranger: Tenant, tenant: Tenant, *methods: str) -> list[tuple[str, str]]:
    """Return (method, path) of routes that distinguish another tenant's id from an unknown id."""
    found = []
    for method, path in list_routes(stranger.api, *methods):
        if "{id}" in path:
            body = {"json": _change(method, path)} if method in ("POST", "PUT") else {}
            for theirs, unknown in _addresses(path, stranger.ids, tenant.ids):
                answers = [
                    await send(stranger.api, method, address, **body)
                    for address in (theirs, unknown)
                ]
                if answers[0] != answers[1] or answers[0][0] != 404:
                    found.append((method, path))
    return sorted(set(found))


def _addresses(path: str, own: dict[str, Any], their: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a path with the other tenant's id, and with an unknown id.

    A path with two ids also comes with the stranger's first and the other tenant's second id.
    """
    record_id = their[place_of(path)]
    part = their["delivery"] if "{delivery_id}" in path else their["document"]
    yield fill_path(path, record_id, part), fill_path(path, _unknown(record_id), part)
    if path.count("{") == 2 and place_of(path) in own:
        record_id = own[place_of(path)]
        yield fill_path(path, record_id, part), fill_path(path, record_id, _unknown(part))


def _unknown(record_id: Any) -> Any:
    """Return an id of the same form that no record has."""
    return record_id + 10**9 if isinstance(record_id, int) else record_id[:-6] + "000000"


def _change(method: str, path: str) -> dict[str, Any]:
    """Return a body that the route accepts."""
    if method == "POST":
        return note() if path.endswith("/adjustment-note") else {}
    changes = {
        "/api/invoices": invoice(),
        "/api/adjustment-notes": {"adjustmentNoteIssueDate": now()},
        "/api/einvoice-requests": {"status": "Reject"},
        "/api/webhooks": {"description": "Mine"},
    }
    return changes.get(place_of(path), {"name": "Mine"})


async def check_bodies(stranger: Tenant, tenant: Tenant) -> None:
    """Assert that ids, codes and idempotency keys in requests reveal nothing of another tenant."""
    api, theirs = stranger.api, tenant.ids
    for method, path, body in (
        (
            "POST",
            "/api/consolidated-invoices/plan",
            lambda invoice_id: {"type": "CONSOLIDATED_INVOICE", "invoiceIds": [invoice_id]},
        ),
        (
            "POST",
            "/api/consolidated-invoices",
            lambda invoice_id: {**_family(), "invoiceIds": [invoice_id]},
        ),
        (
            "POST",
            "/api/validation/invoice-code",
            lambda invoice_id: {"invoice_code": 4711 if invoice_id < 10**9 else 4712},
        ),
    ):
        invoice_id = theirs["/api/invoices"]
        answers = [
            await send(api, method, path, json=body(each))
            for each in (invoice_id, _unknown(invoice_id))
        ]
        bodies = [
            (given[0], given[2].replace(b"%d" % each, b"ID"))
            for given, each in zip(answers, (invoice_id, _unknown(invoice_id)), strict=True)
        ]
        assert bodies[0] == bodies[1], path
    user, organizations = theirs[f"{INTEGRATIONS}users"], f"{INTEGRATIONS}organizations"
    path = f"{organizations}/{stranger.ids[organizations]}"
    answers = [
        await request_json(api, "PUT", path, json={"members": [{"userId": each}]})
        for each in (user, _unknown(user))
    ]
    texts = str(answers[0]).replace(user, "ID"), str(answers[1]).replace(_unknown(user), "ID")
    assert answers[0][0] == 400 and texts[0] == texts[1]
    for path, request in tenant.keyed.items():
        async with api.request("POST", path, **request) as response:
            assert response.status == 201 and "Idempotent-Replayed" not in response.headers, path
    for path in (CERTIFICATE, PORTAL_CREDENTIALS):
        await expect(api, 404, "GET", path)
        await expect(api, 404, "DELETE", path)
    found = await request_json(api, "PUT", "/api/companies", json={"name": "Mine"})
    assert found[1]["data"]["id"] == stranger.company


def _family() -> dict[str, Any]:
    return {
        "type": "CONSOLIDATED_INVOICE",
        "code": 7,
        "issueDateTime": now(),
        "month": last_month()[:7],
    }


async def rows_of(owner: asyncpg.Connection, tenant: Tenant) -> dict[tuple[str, str], Any]:
    """Return all rows of a tenant by table and owner column."""
    rows: dict[tuple[str, str], Any] = {}
    for column, owner_id in (
        ("company_id", tenant.company),
        ("account_id", tenant.account),
    ):
        for table, name in (await _tenant_tables(owner, column)).items():
            query = f"select to_jsonb(t)::text from {table} t where {name} = $1 order by 1"
            rows[table, column] = [row[0] for row in await owner.fetch(query, owner_id)]
    for table, owner_id in (("companies", tenant.company), ("accounts", tenant.account)):
        rows[table, "id"] = await owner.fetchval(
            f"select to_jsonb(t)::text from {table} t where id = $1", owner_id
        )
    return rows


# Each table


@pytest.mark.parametrize("column", OWNERS)
async def test_a_policy_hides_rows_from_a_query_without_predicate(
    tenant: Tenant,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    database: str,
    column: str,
) -> None:
    stranger = await _stranger(environment, column)
    owners, transaction = OWNERS[column]
    fenced = await _tenant_tables(owner, column) | {owners: "id"}
    async with connected_pool(database, 1) as pool:
        for table, name in fenced.items():
            others = f"select count({name}) from {table} where {name} <> $1"
            assert await owner.fetchval(others, stranger), table
            async with transaction(Database(pool), stranger) as conn:
                assert await conn.fetchval(others, stranger) == 0, table


async def _stranger(environment: dict[str, str], column: str) -> Any:
    """Return the id of another company or account that has only a key."""
    if column == "company_id":
        return (await make_company(environment)).id
    return (await make_account(environment, "Ipoh Holdings")).id


async def _tenant_tables(owner: asyncpg.Connection, column: str) -> dict[str, str]:
    """Return the tables whose rows belong to companies, or to accounts, with the id of the owner.

    The id is an SQL expression, which is null for an owner of the other kind.
    """
    rows = await owner.fetch(
        """
        select c.relname, bool_or(a.attname = 'owner_kind') as is_shared
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attname in ($1, 'owner_kind')
         where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
         group by c.relname
        """,
        column,
    )
    shared = f"case owner_kind when '{column.removesuffix('_id')}' then owner_id end"
    return {row["relname"]: shared if row["is_shared"] else column for row in rows}


async def test_companies_and_accounts_cannot_read_each_others_tables(
    tenant: Tenant, owner: asyncpg.Connection, database: str, company: Company
) -> None:
    companies, accounts = [await _tenant_tables(owner, column) for column in OWNERS]
    del companies["organization_companies"]
    async with connected_pool(database, 1) as pool:
        database_of_pool = Database(pool)
        for tables, begin in (
            (
                {**accounts, "accounts": "id"},
                lambda: database_of_pool.company(company.id),
            ),
            (
                {**companies, "companies": "id"},
                lambda: database_of_pool.account(tenant.account),
            ),
        ):
            for table, name in tables.items():
                async with begin() as conn:
                    assert await conn.fetchval(f"select count({name}) from {table}") == 0, table


async def test_a_transaction_without_a_tenant_sees_no_rows(
    tenant: Tenant, owner: asyncpg.Connection, database: str
) -> None:
    async with connected_pool(database, 1) as pool, Database(pool).across() as conn:
        for column, (owners, _) in OWNERS.items():
            for table, name in (await _tenant_tables(owner, column)).items():
                assert await conn.fetchval(f"select count({name}) from {table}") == 0, table
            assert await conn.fetchval(f"select count(id) from {owners}") == 0


@pytest.mark.parametrize("way", ["company", "reading", "account"])
async def test_the_tenant_setting_ends_with_its_transaction(
    database: str, company: Company, way: str
) -> None:
    """The pool has one connection, which the next transaction uses again."""
    async with connected_pool(database, 1) as pool:
        before = await _settings(pool)
        ends = {
            "select 1": None,
            "select 1 / 0": asyncpg.DataError,
            "select pg_sleep(9)": TimeoutError,
        }
        for statement, end in ends.items():
            with pytest.raises(end) if end else nullcontext():
                async with getattr(Database(pool), way)(company.id) as conn:
                    found = await _current(conn)
                    assert found == ([None, company.id] if "account" in way else [company.id, None])
                    assert "account" in way or await sql.company_get(conn)
                    async with asyncio.timeout(0.2 if end is TimeoutError else None):
                        await conn.execute(statement)
            assert await _settings(pool) == before, statement


@pytest.mark.parametrize("per_page", [1, -1])
async def test_the_tenant_setting_ends_with_a_lone_statement(
    database: str, company: Company, per_page: int
) -> None:
    """Also after a statement that fails."""
    async with connected_pool(database, 1) as pool:
        before = await _settings(pool)
        window = {"per_page": per_page, "offset": 0, "budget": 1}
        with pytest.raises(asyncpg.DataError) if per_page < 0 else nullcontext():
            await Database(pool).read(sql.invoice_page, company_id=company.id, **window)
        assert await _settings(pool) == before


async def _current(conn: Any) -> list[Any]:
    """Return the company and the account of a transaction."""
    return list(await conn.fetchrow("select current_company(), current_account()"))


async def _settings(pool: Pool) -> list[Any]:
    async with Database(pool).across() as conn:
        rows = await conn.fetch(
            "select name, setting from pg_settings where source <> 'override' order by name"
        )
        with pytest.raises(TypeError, match="company_get takes company_id; got"):
            await sql.company_get(conn)
        return [*await _current(conn), *map(tuple, rows)]
