"""The two walls between companies, and between accounts: each statement's condition, and PostgreSQL's policies.

The service refuses to start with a gap in the second. A build without the first, and one without the second, keep two
companies apart on every route; one without both does not, which shows that it would be seen.
"""

import asyncio
import re
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import asyncpg
import pytest
from certificates import issued
from conftest import make_company, until
from kit import (
    CERTIFICATE,
    GENEROUS,
    INTEGRATIONS,
    KEYLESS,
    a_delivery,
    answered,
    created,
    documents,
    filled,
    integration_key,
    invoice,
    last_month,
    note,
    now,
    one_of_each,
    one_of_each_integration,
    open_integrations,
    place_of,
    posted,
    routes,
    swept_and_settled,
)
from test_validations import TIN

from service.db import statements
from service.db.statements import sql
from service.db.transactions import SERVICE_ROLE, Database, check_tenant_isolation, connected_pool

# A gap, and a start

OWN_AGAIN = "create policy own_company on invoices for select to einvoice_service"
DEFINER = "language sql security definer set search_path = pg_catalog return 1"

#: What opens the wall, and how the refusal to start names it.
BREACHES = (
    ("alter table invoices no force row level security", "the table invoices has no forced policy"),
    ("alter table invoices disable row level security", "the table invoices has no forced policy"),
    (
        "alter table companies no force row level security",
        "the table companies has no forced policy",
    ),
    (
        "alter table consolidated_invoices no force row level security",
        "the table consolidated_invoices has no",
    ),
    (
        "alter table idempotency_keys disable row level security",
        "the table idempotency_keys has no forced policy",
    ),
    ("alter table accounts no force row level security", "the table accounts has no forced policy"),
    ("drop policy own_company on events", "the table events has no forced policy"),
    (
        "drop policy own_company on webhook_secrets",
        "the table webhook_secrets has no forced policy",
    ),
    (
        "drop policy own_account on organization_members",
        "the table organization_members has no forced policy",
    ),
    (
        "drop policy own_account on integration_idempotency_keys",
        "the table integration_idempotency_keys has no",
    ),
    (
        "alter policy own_company on invoices using (true)",
        "the table invoices has no forced policy",
    ),
    (
        "alter policy own_company on invoices with check (true)",
        "the table invoices has no forced policy",
    ),
    (
        "alter policy own_company on companies using (id > 0)",
        "the table companies has no forced policy",
    ),
    (
        "alter policy own_account on organization_companies using (company_id = current_company())",
        "organization_companies",
    ),
    (
        f"drop policy own_company on invoices; {OWN_AGAIN} using (company_id = current_company())",
        "the table invoices has no forced policy",
    ),
    ("create table leaks (company_id bigint)", "the table leaks has no forced policy"),
    ("create table leaks (account_id bigint)", "the table leaks has no forced policy"),
    (
        "create table leaks (company_id bigint) partition by hash (company_id)",
        "the table leaks has no forced policy",
    ),
    ("create policy open on invoices using (true)", "the policy open opens the table invoices"),
    (
        "create policy open on integration_users using (true)",
        "the policy open opens the table integration_users",
    ),
    (
        "alter view invoice_records reset (security_invoker)",
        "the view invoice_records does not ask",
    ),
    (
        "alter view organization_records reset (security_invoker)",
        "the view organization_records does not ask",
    ),
    ("create view leaks as select * from invoices", "the view leaks does not ask"),
    (
        f"create materialized view leaks as select * from invoices; grant select on leaks to {SERVICE_ROLE}",
        "the view leaks does not ask",
    ),
    (
        f"alter table events owner to {SERVICE_ROLE}",
        f"the role {SERVICE_ROLE} owns the table events",
    ),
    (f"alter role {SERVICE_ROLE} bypassrls", f"the role {SERVICE_ROLE} may step over it"),
    (f"alter role {SERVICE_ROLE} superuser", f"the role {SERVICE_ROLE} may step over it"),
    (f"alter role {SERVICE_ROLE} createrole", f"the role {SERVICE_ROLE} may step over it"),
    (
        f"grant einvoice_across to {SERVICE_ROLE}",
        f"the role {SERVICE_ROLE} is a member of einvoice_across",
    ),
    (
        f"create role landlord; grant landlord to {SERVICE_ROLE}",
        f"the role {SERVICE_ROLE} is a member of landlord",
    ),
    (
        f"grant truncate on invoices to {SERVICE_ROLE}",
        f"the role {SERVICE_ROLE} may empty the table invoices",
    ),
    ("grant truncate on events to public", f"the role {SERVICE_ROLE} may empty the table events"),
    (
        "create or replace function current_company() returns bigint stable language sql return 1::bigint",
        "current_company() or current_account() is somebody without a setting",
    ),
    (
        f"create function leaks() returns int {DEFINER}",
        "the function leaks runs with another's rights and these may",
    ),
    (
        "grant execute on function api_key_of(text) to public",
        "the function api_key_of runs with another's rights and anybody may call it",
    ),
    (
        "alter function claim_submissions reset search_path",
        "the function claim_submissions runs with another's rights and finds tables by a path of its caller's",
    ),
    (
        "create unique index anyones on invoices (code)",
        "the unique index anyones of invoices does not begin with company_id",
    ),
    (
        "alter table organizations add constraint anyones unique (email)",
        "the unique index anyones of organizations does not begin with account_id",
    ),
    (
        "alter table invoices add constraint anyones unique (id);"
        " create table leaks (invoice_id bigint references invoices (id))",
        "the foreign key leaks_invoice_id_fkey of leaks leaves out company_id",
    ),
    (
        "create table leaks (owner bigint references companies)",
        "the foreign key leaks_owner_fkey of leaks leaves out company_id",
    ),
)


async def test_each_gap_in_the_wall_is_found_and_named(owner):
    """Each is opened in a transaction that nobody else sees: roles belong to all databases of the server."""
    unnamed = {
        breach: found
        for breach, name in BREACHES
        if name not in (found := await _found(owner, breach))
    }
    assert unnamed == {}


async def _found(owner, breach):
    """What the check says to a breach, after which it is undone."""
    undo = owner.transaction()
    await undo.start()
    try:
        await owner.execute(breach)
        await owner.execute(f"set local role {SERVICE_ROLE}")
        await check_tenant_isolation(owner)
    except RuntimeError as refusal:
        return str(refusal)
    finally:
        await undo.rollback()
    return "nothing"


async def test_the_migrated_schema_separates_companies_and_accounts(database: str) -> None:
    async with connected_pool(database, 1) as pool:
        await check_tenant_isolation(pool)


#: A table or view that a statement reads or changes, and its alias.
REFERENCE = re.compile(
    r"\b(?:from|join|update)\s+(\w+)"
    r"(?:\s+(?:as\s+)?(?!(?:set|where|on|join|left|cross|order|group|limit|for|returning|union|using)\b)(\w+))?"
)


async def test_every_statement_names_the_owner_of_each_table(owner: asyncpg.Connection) -> None:
    """Each tenant table or view of a statement is compared with the company or the account, whatever its policy does."""
    columns = await owner.fetch(
        """
        select table_name, max(column_name) as owner_column, bool_or(table_name in ('companies', 'accounts')) as is_owner
          from information_schema.columns
         where table_schema = 'public' and column_name in ('company_id', 'account_id')
         group by table_name
        """
    )
    tenants = {row["table_name"]: row["owner_column"] for row in columns}
    open_ones = [
        (name, table)
        for name, statement in sql.by_name.items()
        for table, alias in REFERENCE.findall(re.sub(r"--[^\n]*", "", statement.text))
        if table in tenants and not _names_owner(statement.text, tenants[table], alias)
    ]
    assert open_ones == []


def _names_owner(text: str, column: str, alias: str) -> bool:
    """Return whether a statement compares the owner's column of a table, which it may call by an alias."""
    column = column if column == "company_id" else "(?:account|company)_id"
    qualified = (
        rf"\b{alias}\.{column} = |= {alias}\.{column}\b" if alias else rf"(?<![\w.]){column} = :"
    )
    return re.search(rf"{qualified}|(?<![\w.]){column} = :", text) is not None


@pytest.mark.parametrize("breach, name", [BREACHES[0], BREACHES[-1]])
async def test_the_service_does_not_start_with_a_gap_in_the_wall(
    owner, start, company, breach, name
):
    await owner.execute(breach)
    with pytest.raises(RuntimeError, match=name):
        await start(company)


async def test_the_service_does_not_run_as_a_superuser(database):
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
        with pytest.raises(RuntimeError, match="may step over it"):
            await check_tenant_isolation(pool)


# One wall alone


#: The two walls: the column that names the owner, the table of the owners, and the transaction that
#: sees one's rows.
WALLS = {
    "company_id": ("companies", Database.company),
    "account_id": ("accounts", Database.account),
}
#: The condition on the owner, as the statements write it, and what takes its place: it keeps the
#: variable and its type.
PREDICATE = re.compile(
    r"(?:\b\w+\.)?\b(?:company_id|account_id|id) = :(company_id|account_id)\b(?:::bigint)?"
)
EVERYBODY = r"(:\1::bigint is not null)"


@contextmanager
def without_predicates():
    """A build of which no statement asks whose rows it takes."""
    stripped, as_written = {}, statements.Statement.__call__
    for name, statement in sql.by_name.items():
        text = PREDICATE.sub(EVERYBODY, statement.text)
        assert not re.search(r"= :(company_id|account_id)\b", text), name
        stripped[name] = statements._statement({"name": name, "kind": statement.kind}, text)

    async def call(statement, conn, **values):
        return await as_written(stripped[statement.name], conn, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements.Statement, "__call__", call)
        yield


async def without_policies(owner):
    """A build of which no table is behind a policy. It has started before: it would not any more."""
    for table in await _tables(owner):
        await owner.execute(
            f"alter table {table} no force row level security, disable row level security"
        )


async def moved_in(start, environment, company, owner):
    """What a company and an account have, in every table behind their walls: `ids` by place, `api`, and the account."""
    api = await start(company, **GENEROUS)
    account = await open_integrations(api, environment)
    ids = {
        **await one_of_each(api),
        **await one_of_each_integration(api, environment, account, company.id),
    }
    ids["delivery"] = await a_delivery(api, ids["/api/webhooks"])
    ids["document"] = (await documents(api, ids["/api/invoices"]))[0]["id"]
    webhook = f"/api/webhooks/{ids['/api/webhooks']}"
    # Nothing moves by itself
    assert (await answered(api, "PUT", webhook, json={"enabled": False}))[0] == 200
    await until(
        lambda: owner.fetchval(
            "select count(*) = 0 from webhook_endpoints where lease_until is not null"
        )
    )
    person = {"name": "Siti", "email": "siti@example.com", "role": "member"}
    bodies = {"/api/invoices": invoice(code=4711), f"{INTEGRATIONS}users": person}
    keyed = {
        path: {"json": body, "headers": {"Idempotency-Key": "4711"}}
        for path, body in bodies.items()
    }
    for path, request in keyed.items():
        assert (await answered(api, "POST", path, **request))[0] == 201
    assert (await answered(api, "POST", "/api/validation/tin", json=TIN))[0] == 200
    assert (await answered(api, "PUT", CERTIFICATE, json=issued().pair))[0] == 200
    await swept_and_settled(owner)
    return SimpleNamespace(api=api, company=company.id, account=account, ids=ids, keyed=keyed)


@pytest.fixture
async def household(start, environment, company, owner):
    return await moved_in(start, environment, company, owner)


@pytest.fixture
async def stranger(environment, start):
    """A client of another company and another account, which have something of their own: `api`, and `ids` by place."""
    company = await make_company(environment)
    api = await start(company, background=False, **GENEROUS)
    account = await open_integrations(api, environment, "Ipoh Holdings")
    webhook = await posted(api, "/api/webhooks", url="http://127.0.0.1:9/", enabled=False)
    ids = {"/api/invoices": await created(api), "/api/webhooks": webhook["id"]}
    ids |= await one_of_each_integration(api, environment, account, company.id)
    return SimpleNamespace(api=api, company=company.id, account=account, ids=ids)


@pytest.mark.parametrize("standing", ["policies", "predicates"])
async def test_each_wall_alone_keeps_two_companies_apart_on_every_route(
    stranger, start, environment, company, owner, sandbox, standing
):
    before = await listed(stranger.api)
    household = await moved_in(start, environment, company, owner)
    rows, sent = await rows_of(owner, household), await sandbox.ledger()
    with without_predicates() if standing == "policies" else nullcontext():
        if standing == "predicates":
            await without_policies(owner)
        after = await listed(stranger.api)
        assert {
            path: (before[path], answer) for path, answer in after.items() if answer != before[path]
        } == {}
        assert await told_apart(stranger, household) == []
        await as_if_alone(stranger, household)
    assert await rows_of(owner, household) == rows
    assert await sandbox.ledger() == sent


async def test_without_both_walls_the_same_walk_sees_anothers_records(
    stranger, start, environment, company, owner
):
    before = await listed(stranger.api)
    household = await moved_in(start, environment, company, owner)
    with without_predicates():
        await without_policies(owner)
        after = await listed(stranger.api)
        leaks = {path for _, path in await told_apart(stranger, household, "GET")}
    seen = {path for path, answer in after.items() if answer != before[path]}
    assert {
        "/api/invoices",
        "/api/events",
        "/api/invoices/export-all",
        f"{INTEGRATIONS}users",
    } <= seen
    gets = {path for _, path in routes(stranger.api, "GET") if "{id}" in path}
    assert len(gets) > 20 and leaks == gets


#: What differs between the answers to one request made twice.
EACH_TIME = {"x-request-id", "date", "x-ratelimit-remaining", "x-ratelimit-reset"}
SEARCHES = ("", "?query=4711", "?query=Aminah", "?query=Nurul")


async def heard(api, method, path, **request):
    """All of an answer: status, headers and bytes."""
    async with api.request(method, path, **request) as response:
        headers = {
            name: value for name, value in response.headers.items() if name.lower() not in EACH_TIME
        }
        return response.status, headers, await response.read()


async def listed(api):
    """{path: answer} of all that is read without an id: lists with their counts, exports, events, what there is one of."""
    paths = [path for _, path in routes(api, "GET") if "{" not in path and path not in KEYLESS]
    assert len(paths) > 12
    return {
        path + query: await heard(api, "GET", path + query) for path in paths for query in SEARCHES
    }


async def told_apart(stranger, household, *methods):
    """(method, path) of the routes on which a stranger could tell another's id from one that nobody has."""
    found = []
    for method, path in routes(stranger.api, *methods):
        if "{id}" in path:
            body = {"json": _change(method, path)} if method in ("POST", "PUT") else {}
            for theirs, nobodys in _addresses(path, stranger.ids, household.ids):
                answers = [
                    await heard(stranger.api, method, address, **body)
                    for address in (theirs, nobodys)
                ]
                if answers[0] != answers[1] or answers[0][0] != 404:
                    found.append((method, path))
    return sorted(set(found))


def _addresses(path, own, their):
    """(with their id, with one that nobody has) of a path; where it has two parts also their second under an own first."""
    id = their[place_of(path)]
    part = their["delivery"] if "{delivery_id}" in path else their["document"]
    yield filled(path, id, part), filled(path, _nobodys(id), part)
    if path.count("{") == 2 and place_of(path) in own:
        id = own[place_of(path)]
        yield filled(path, id, part), filled(path, id, _nobodys(part))


def _nobodys(id):
    return id + 10**9 if isinstance(id, int) else id[:-6] + "000000"


def _change(method, path):
    """A body that the route takes."""
    if method == "POST":
        return note() if path.endswith("/adjustment-note") else {}
    changes = {
        "/api/invoices": invoice(),
        "/api/adjustment-notes": {"adjustmentNoteIssueDate": now()},
        "/api/einvoice-requests": {"status": "Reject"},
        "/api/webhooks": {"description": "Mine"},
    }
    return changes.get(place_of(path), {"name": "Mine"})


async def as_if_alone(stranger, household):
    """What names no id in its path: bodies with another's ids and codes, another's idempotency keys, the one company."""
    api, theirs = stranger.api, household.ids
    for method, path, body in (
        (
            "POST",
            "/api/consolidated-invoices/plan",
            lambda id: {"type": "CONSOLIDATED_INVOICE", "invoiceIds": [id]},
        ),
        ("POST", "/api/consolidated-invoices", lambda id: {**_family(), "invoiceIds": [id]}),
        (
            "POST",
            "/api/validation/invoice-code",
            lambda id: {"invoice_code": 4711 if id < 10**9 else 4712},
        ),
    ):
        id = theirs["/api/invoices"]
        answers = [await heard(api, method, path, json=body(each)) for each in (id, _nobodys(id))]
        said = [
            (given[0], given[2].replace(b"%d" % each, b"ID"))
            for given, each in zip(answers, (id, _nobodys(id)), strict=False)
        ]
        assert said[0] == said[1], path
    user, organizations = theirs[f"{INTEGRATIONS}users"], f"{INTEGRATIONS}organizations"
    path = f"{organizations}/{stranger.ids[organizations]}"
    answers = [
        await answered(api, "PUT", path, json={"members": [{"userId": each}]})
        for each in (user, _nobodys(user))
    ]
    assert answers[0][0] == 400 and str(answers[0]).replace(user, "ID") == str(answers[1]).replace(
        _nobodys(user), "ID"
    )
    for path, request in household.keyed.items():
        async with api.request("POST", path, **request) as response:
            assert response.status == 201 and "Idempotent-Replayed" not in response.headers, path
    assert (await answered(api, "DELETE", CERTIFICATE))[0] == 404
    assert (await answered(api, "PUT", "/api/companies", json={"name": "Mine"}))[1]["data"][
        "id"
    ] == stranger.company


def _family():
    return {
        "type": "CONSOLIDATED_INVOICE",
        "code": 7,
        "issueDateTime": now(),
        "month": last_month()[:7],
    }


async def rows_of(owner, household):
    """{table: rows} of all that the household has; some of it is somebody else's table, and stays empty."""
    rows = {}
    for column, id in (("company_id", household.company), ("account_id", household.account)):
        for table in await _fenced(owner, column):
            query = f"select to_jsonb(t)::text from {table} t where {column} = $1 order by 1"
            rows[table, column] = [row[0] for row in await owner.fetch(query, id)]
    for table, id in (("companies", household.company), ("accounts", household.account)):
        rows[table, "id"] = await owner.fetchval(
            f"select to_jsonb(t)::text from {table} t where id = $1", id
        )
    return rows


async def _tables(owner):
    return {*WALLS["company_id"][:1], *WALLS["account_id"][:1]}.union(
        *[await _fenced(owner, column) for column in WALLS]
    )


# Each table


@pytest.mark.parametrize("column", WALLS)
async def test_without_its_predicate_a_query_still_hides_anothers_rows(
    household, environment, owner, database, column
):
    stranger = await _stranger(environment, column)
    owners, wall = WALLS[column]
    fenced = dict.fromkeys(await _fenced(owner, column), column) | {owners: "id"}
    async with connected_pool(database, 1) as pool:
        for table, name in fenced.items():
            others = f"select count({name}) from {table} where {name} <> $1"
            assert await owner.fetchval(others, stranger), table
            async with wall(Database(pool), stranger) as conn:
                assert await conn.fetchval(others, stranger) == 0, table


async def _stranger(environment, column):
    """The id of another company or account, which has a key and nothing else."""
    if column == "company_id":
        return (await make_company(environment)).id
    return (await integration_key(environment, "Ipoh Holdings"))["account_id"]


async def _fenced(owner, column):
    """The tables that have the column of an owner."""
    rows = await owner.fetch(
        """
        select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = $1
         where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
        """,
        column,
    )
    return [row["relname"] for row in rows]


async def test_a_table_of_an_account_shows_nothing_to_a_company_and_the_other_way_round(
    household, owner, database, company
):
    companies, accounts = [set(await _fenced(owner, column)) for column in WALLS]
    async with connected_pool(database, 1) as pool:
        for tables, column, wall, id in (
            ({*accounts, "accounts"}, "account_id", Database.company, company.id),
            (
                {*companies - accounts, "companies"},
                "company_id",
                Database.account,
                household.account,
            ),
        ):
            for table in tables:
                name = "id" if table in ("companies", "accounts") else column
                async with wall(Database(pool), id) as conn:
                    assert await conn.fetchval(f"select count({name}) from {table}") == 0, table


async def test_without_a_company_or_an_account_nothing_is_seen(household, owner, database):
    async with connected_pool(database, 1) as pool, Database(pool).across() as conn:
        for column, (owners, _) in WALLS.items():
            for table in await _fenced(owner, column):
                assert await conn.fetchval(f"select count({column}) from {table}") == 0, table
            assert await conn.fetchval(f"select count(id) from {owners}") == 0


async def test_a_company_cannot_write_a_row_of_another(environment, database, company):
    stranger = await make_company(environment)
    async with connected_pool(database, 1) as pool:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with Database(pool).company(stranger.id) as conn:
                await conn.execute(
                    "insert into events (company_id, type, data) values ($1, 'x', '{}')", company.id
                )


@pytest.mark.parametrize(
    "way", [name for name in vars(Database) if name[0] != "_" and name != "across"]
)
async def test_what_a_transaction_sets_is_gone_with_it_however_it_ends(database, company, way):
    """The one connection of a pool, as the next request finds it."""
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
                    assert await _current(conn) == (
                        [None, company.id] if "account" in way else [company.id, None]
                    )
                    async with asyncio.timeout(0.2 if end is TimeoutError else None):
                        await conn.execute(statement)
            assert await _settings(pool) == before, statement


async def _current(conn):
    """The company and the account of a transaction."""
    return list(await conn.fetchrow("select current_company(), current_account()"))


async def _settings(pool):
    async with Database(pool).across() as conn:
        rows = await conn.fetch(
            "select name, setting from pg_settings where source <> 'override' order by name"
        )
        return [*await _current(conn), *map(tuple, rows)]
