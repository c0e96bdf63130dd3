"""What holds for the whole house: which way imports point, and that code, schemas, SQL and README agree."""

import ast
import asyncio
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest
from certificates import issued
from conftest import make_company
from kit import (
    CERTIFICATE,
    GENEROUS,
    INTEGRATIONS,
    KEYLESS,
    a_delivery,
    answered,
    filled,
    integration_key,
    invoice,
    note,
    one_of_each,
    one_of_each_integration,
    open_integrations,
    place_of,
    routes,
)
from test_validations import TIN

from service import consolidation, errors, failpoints, schema, states, wire
from service.config import VARIABLES, ConfigError, read_config
from service.db import SERVICE_ROLE, Database, connected_pool, refuse_without_wall
from service.portal import certificate
from service.statements import sql

ROOT = Path(__file__).resolve().parent.parent

#: From top to bottom: a module may import from its own row and from those below. A package stands for all in it.
ROWS = (
    ("commands", {"run", "service.commands"}),
    ("the portal's stand-in", {"service.sandbox"}),
    ("wiring", {"service.app", "service.background"}),
    ("surfaces", {"service.handlers"}),
    ("flows", {"service.submission", "service.tins", "service.webhooks.delivery"}),
    (
        "reach",
        {
            "service.edge",
            "service.middleware",
            "service.intake",
            "service.schema",
            "service.paging",
            "service.keys",
            "service.drafts",
            "service.idempotency",
            "service.quota",
            "service.portal.client",
            "service.portal.answers",
            "service.portal.quota",
        },
    ),
    (
        "database",
        {
            "service.db",
            "service.statements",
            "service.embedded",
            "service.embedded_programs",
            "service.embedded_server",
        },
    ),
    (
        "rules",
        {
            "service.states",
            "service.calls",
            "service.machine",
            "service.money",
            "service.codes",
            "service.consolidation",
            "service.openapi",
            "service.operations",
            "service.printing",
            "service.portal.document",
            "service.portal.frozen",
            "service.portal.delivery",
            "service.portal.lines",
            "service.portal.parties",
            "service.portal.references",
            "service.portal.ubl",
            "service.portal.certificate",
            "service.portal.private_key",
            "service.portal.signature",
            "service.secrets_at_rest",
            "service.portal.preflight",
            "service.portal.rules",
            "service.portal.rules_address",
            "service.portal.rules_document",
            "service.portal.rules_line",
            "service.portal.rules_party",
            "service.webhooks.address",
            "service.webhooks.signature",
        },
    ),
    ("wire", {"service.wire", "service.errors", "service.config", "service.failpoints"}),
)


def _modules():
    """{dotted name: path} of all that is ours; a package's own code stands under the package's name."""
    for path in [ROOT / "run.py", *sorted((ROOT / "service").rglob("*.py"))]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


MODULES = dict(_modules())
#: Packages that hold nothing but their modules.
HOLLOW = {"service", "service.portal", "service.webhooks"}


def row_of(module):
    """The number of a module's row, counted from the top; None for a module that is in none."""
    places = (
        place
        for place, (_, names) in enumerate(ROWS)
        if any(module == name or module.startswith(f"{name}.") for name in names)
    )
    return next(places, None)


def imports(module):
    """The modules of ours that a module imports, also inside of its functions."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            source = _source(module, node)
            inner = {f"{source}.{alias.name}" for alias in node.names} & MODULES.keys()
            yield from inner or {source} & MODULES.keys()


def _source(module, node):
    """The absolute name that `from ... import` names; a package's own code counts its dots from the package."""
    if not node.level:
        return node.module
    ups = node.level - (MODULES[module].name == "__init__.py")
    package = module.split(".")[: -ups or None]
    return ".".join([*package, *filter(None, [node.module])])


def test_every_module_stands_in_a_row():
    assert {module for module in MODULES if row_of(module) is None} == HOLLOW


def test_what_a_package_holds_together_is_empty():
    assert [name for name in HOLLOW if MODULES[name].read_text().strip()] == []


@pytest.mark.parametrize("module", sorted(MODULES.keys() - HOLLOW))
def test_imports_point_down(module):
    up = [f"{module} imports {name}" for name in imports(module) if row_of(name) < row_of(module)]
    assert up == []


def test_the_sandbox_knows_nothing_of_the_service_but_the_codes():
    known = {name for module in MODULES if module.startswith("service.sandbox") for name in imports(module)}
    assert {name for name in known if not name.startswith("service.sandbox")} == {"service.codes"}


# SQL


async def test_every_statement_can_be_run_by_the_services_role(database):
    """Names, types and rights: explaining a statement asks for all that running it asks for, and runs nothing."""
    failed = {}
    async with connected_pool(database, 1) as pool:
        for name, statement in sql.by_name.items():
            try:
                if not name.startswith("migration"):
                    async with Database(pool).company(1) as conn:
                        await conn.fetch(f"explain {statement.query}", *[None] * len(statement.variables))
            except asyncpg.PostgresError as fault:
                failed[name] = str(fault)
    assert failed == {}


@pytest.mark.parametrize("path", sorted((ROOT / "sql" / "inspect").glob("*.sql")), ids=lambda path: path.stem)
async def test_every_inspection_can_be_run(owner, path):
    await owner.fetch(re.sub(r"(?<!:):(company_id|id)\b", "1", path.read_text()))


async def test_the_statements_of_the_migration_are_sound(owner):
    for name, statement in sql.by_name.items():
        if name.startswith("migration"):
            await owner.prepare(statement.query)


async def test_every_constraint_that_means_a_refusal_exists(owner):
    rows = await owner.fetch(
        """
        select conname as name from pg_constraint
        union
        select relname from pg_class join pg_index on indexrelid = oid where indisunique
        """
    )
    assert set(errors.CONSTRAINTS) - {row["name"] for row in rows} == set()


@pytest.mark.parametrize(
    "constraint, words",
    [
        ("invoices_status", states.SUBJECT_MOVES),
        ("adjustment_notes_status", states.SUBJECT_MOVES),
        ("consolidated_invoices_status", states.SUBJECT_MOVES),
        ("submitted_documents_status", states.DOCUMENT_MOVES),
        ("submissions_state", states.SUBMISSION_MOVES),
        ("invoices_only_unsent_deleted", set(states.SUBJECT_MOVES) - states.LOCKED),
        ("adjustment_notes_only_unsent_deleted", set(states.SUBJECT_MOVES) - states.LOCKED),
        ("consolidated_invoices_only_unsent_deleted", set(states.SUBJECT_MOVES) - states.LOCKED),
        ("einvoice_requests_status", schema.ALL["einvoice_request_update"]["properties"]["status"]["enum"]),
        ("signing_certificates_issuer_form", certificate.ISSUER_FORMS),
        (
            "signing_certificates_issuer_form",
            schema.ALL["signing_certificate_update"]["properties"]["issuer_form"]["enum"],
        ),
        ("companies_registration_type", schema.ALL["company_update"]["properties"]["registration_type"]["enum"]),
        ("integration_users_role", schema.ALL["common"]["$defs"]["role"]["enum"]),
        ("organization_members_role", schema.ALL["common"]["$defs"]["role"]["enum"]),
        ("consolidated_invoices_type", consolidation.FAMILIES),
        ("consolidated_invoices_type", schema.ALL["consolidated_invoice_plan"]["properties"]["type"]["enum"]),
        ("invoices_type", schema.ALL["invoice_update"]["properties"]["type"]["enum"]),
        ("adjustment_notes_type", schema.ALL["adjustment_note_create"]["properties"]["type"]["enum"]),
        ("adjustment_notes_type", schema.ALL["adjustment_note_update"]["properties"]["type"]["enum"]),
    ],
)
async def test_a_check_constraint_lists_the_words_of_the_tables(owner, constraint, words):
    text = await owner.fetchval(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = $1", constraint
    )
    assert set(re.findall(r"'(\w+)'", text)) == set(words)


@pytest.mark.parametrize(
    "index",
    [
        "submitted_documents_one_live_per_invoice",
        "submitted_documents_one_live_per_note",
        "submitted_documents_one_live_per_consolidated_invoice",
    ],
)
async def test_what_is_locked_has_one_live_document(owner, index):
    text = await owner.fetchval("select indexdef from pg_indexes where indexname = $1", index)
    assert text.startswith("CREATE UNIQUE INDEX")
    assert set(re.findall(r"'(\w+)'", text)) == states.LOCKED


@pytest.mark.parametrize("moves", [states.SUBJECT_MOVES, states.DOCUMENT_MOVES, states.SUBMISSION_MOVES])
def test_every_move_leads_to_a_state(moves):
    assert set().union(*moves.values()) <= set(moves)


def test_every_status_of_a_document_decides_that_of_its_invoice():
    assert set(states.SUBJECT_OF_DOCUMENT) == set(states.DOCUMENT_MOVES)
    assert set(states.SUBJECT_OF_DOCUMENT.values()) == set(states.SUBJECT_MOVES)


# The wall between companies


@pytest.mark.parametrize(
    "breach",
    [
        "alter table invoices no force row level security",
        "alter table invoices disable row level security",
        "alter table companies no force row level security",
        "drop policy own_company on events",
        "create policy open on invoices using (true)",
        "alter view invoice_records reset (security_invoker)",
        f"alter table events owner to {SERVICE_ROLE}",
        "create table leaks (company_id bigint)",
        "alter table consolidated_invoices no force row level security",
        "drop policy own_company on webhook_secrets",
        "alter table idempotency_keys disable row level security",
        "alter table accounts no force row level security",
        "drop policy own_account on organization_members",
        "create policy open on integration_users using (true)",
        "drop policy own_account on integration_idempotency_keys",
        "alter view organization_records reset (security_invoker)",
        "create table leaks (account_id bigint)",
    ],
)
async def test_the_service_does_not_start_with_a_gap_in_the_wall(owner, start, company, breach):
    await owner.execute(breach)
    with pytest.raises(RuntimeError, match="gaps"):
        await start(company)


async def test_the_service_does_not_run_as_a_superuser(database):
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
        with pytest.raises(RuntimeError, match="may step over it"):
            await refuse_without_wall(pool)


@pytest.fixture
async def household(start, environment, company):
    """What a company and an account have, in every table behind their walls: `ids` by place, `api`, and the account."""
    api = await start(company, **GENEROUS)
    account = await open_integrations(api, environment)
    ids = {**await one_of_each(api), **await one_of_each_integration(api, environment, account, company.id)}
    ids["delivery"] = await a_delivery(api, ids["/api/webhooks"])
    person = {"name": "Siti", "email": "siti@example.com", "role": "member"}
    bodies = {"/api/invoices": invoice(code=4711), f"{INTEGRATIONS}users": person}
    keyed = {path: {"json": body, "headers": {"Idempotency-Key": "4711"}} for path, body in bodies.items()}
    for path, request in keyed.items():
        assert (await answered(api, "POST", path, **request))[0] == 201
    assert (await answered(api, "POST", "/api/validation/tin", json=TIN))[0] == 200
    assert (await answered(api, "PUT", CERTIFICATE, json=issued().pair))[0] == 200
    return SimpleNamespace(api=api, account=account, ids=ids, keyed=keyed)


#: The two walls: the column that names the owner, the table of the owners, and the transaction that sees one's rows.
WALLS = {
    "company_id": ("companies", Database.company),
    "account_id": ("accounts", Database.account),
}


@pytest.mark.parametrize("column", WALLS)
async def test_without_its_predicate_a_query_still_hides_anothers_rows(household, environment, owner, database, column):
    stranger = await _stranger(environment, column)
    owners, wall = WALLS[column]
    fenced = {table: column for table in await _fenced(owner, column)} | {owners: "id"}
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


async def test_a_table_of_an_account_shows_nothing_to_a_company_and_the_other_way_round(household, owner, database, company):
    companies, accounts = [set(await _fenced(owner, column)) for column in WALLS]
    async with connected_pool(database, 1) as pool:
        for tables, column, wall, id in (
            ({*accounts, "accounts"}, "account_id", Database.company, company.id),
            ({*companies - accounts, "companies"}, "company_id", Database.account, household.account),
        ):
            for table in tables:
                name = "id" if table in ("companies", "accounts") else column
                async with wall(Database(pool), id) as conn:
                    assert await conn.fetchval(f"select count({name}) from {table}") == 0, table


async def test_without_the_second_wall_the_predicates_still_hide_anothers_rows(household, environment, owner, start):
    other = await make_company(environment)
    stranger = await start(other, **GENEROUS)
    await open_integrations(stranger, environment, "Ipoh Holdings")
    tables = {"companies", "accounts"}.union(*[await _fenced(owner, column) for column in WALLS])
    for table in tables:
        await owner.execute(f"alter table {table} no force row level security, disable row level security")
    before = await _changeable(owner)
    for method, path in routes(stranger, "GET", "POST", "PUT", "DELETE"):
        if "{id}" in path:
            body = {"json": note() if path.endswith("-note") else {}} if method in ("POST", "PUT") else {}
            for part in await _parts(household, path):
                given = await answered(stranger, method, filled(path, household.ids[place_of(path)], part), **body)
                assert given[0] == 404, (method, path)
        elif method == "GET" and path not in {"/api/companies", CERTIFICATE, *KEYLESS}:
            for query in ("", "?query=4711", "?query=Aminah") if path != "/api/events" else ("",):
                found = (await answered(stranger, "GET", path + query))[1]
                assert (found if isinstance(found, list) else found["data"]) == [], path + query
    assert await _changeable(owner) == before and all(before.values())
    await _alone_as_ever(stranger, other, household)


async def _parts(household, path):
    """Ids of the household for the second {part} of a path."""
    if "{delivery_id}" in path:
        return [household.ids["delivery"]]
    if "{submitted_document_id}" in path:
        invoice = household.ids["/api/invoices"]
        _, found = await answered(household.api, "GET", f"/api/invoices/{invoice}/submitted-documents")
        return [found[0]["id"]]
    return [1]


#: Columns of a webhook that its courier goes on writing.
RESTLESS = ["fence", "lease_until", "served_at", "cursor_transaction", "cursor_event"]
CHANGEABLE = (
    "invoices",
    "adjustment_notes",
    "consolidated_invoices",
    "einvoice_requests",
    "webhook_endpoints",
    "webhook_secrets",
    "integration_users",
    "organizations",
    "organization_members",
    "signing_certificates",
)


async def _changeable(owner):
    """{table: its rows as text}, of all that a request changes or takes away."""
    query = "select coalesce(array_agg((to_jsonb(t) - $1::text[])::text), '{{}}') from {} t"
    return {table: sorted(await owner.fetchval(query.format(table), RESTLESS)) for table in CHANGEABLE}


async def _alone_as_ever(stranger, other, household):
    """What has no id in its path: the stranger's own company, its free codes, its own use of a key."""
    assert (await answered(stranger, "GET", "/api/companies"))[1]["data"]["id"] == other.id
    for method in ("GET", "DELETE"):
        assert (await answered(stranger, method, CERTIFICATE))[0] == 404
    free = (200, {"data": {"success": True}})
    assert await answered(stranger, "POST", "/api/validation/invoice-code", json={"invoice_code": 4711}) == free
    ids = [household.ids["/api/invoices"]]
    plan = {"type": "CONSOLIDATED_INVOICE", "invoiceIds": ids}
    status, body = await answered(stranger, "POST", "/api/consolidated-invoices/plan", json=plan)
    assert status == 200 and body["data"]["invoices"] == []
    assert [left["reason"] for left in body["data"]["left_out"]] == [consolidation.UNKNOWN[0]]
    members = {"members": [{"userId": household.ids[f"{INTEGRATIONS}users"]}]}
    path = f"{INTEGRATIONS}organizations/{household.ids[f'{INTEGRATIONS}organizations']}"
    assert (await answered(stranger, "PUT", path, json=members))[0] == 404
    for path, request in household.keyed.items():
        async with stranger.request("POST", path, **request) as response:
            assert response.status == 201 and "Idempotent-Replayed" not in response.headers, path


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
                await conn.execute("insert into events (company_id, type, data) values ($1, 'x', '{}')", company.id)


@pytest.mark.parametrize("way", [name for name in vars(Database) if name[0] != "_" and name != "across"])
async def test_what_a_transaction_sets_is_gone_with_it_however_it_ends(database, company, way):
    """The one connection of a pool, as the next request finds it."""
    async with connected_pool(database, 1) as pool:
        before = await _settings(pool)
        ends = {"select 1": None, "select 1 / 0": asyncpg.DataError, "select pg_sleep(9)": TimeoutError}
        for statement, end in ends.items():
            with pytest.raises(end) if end else nullcontext():
                async with asyncio.timeout(0.2), getattr(Database(pool), way)(company.id) as conn:
                    assert await _current(conn) == ([None, company.id] if "account" in way else [company.id, None])
                    await conn.execute(statement)
            assert await _settings(pool) == before, statement


async def _current(conn):
    """The company and the account of a transaction."""
    return list(await conn.fetchrow("select current_company(), current_account()"))


async def _settings(pool):
    async with Database(pool).across() as conn:
        rows = await conn.fetch("select name, setting from pg_settings where source <> 'override' order by name")
        return [*await _current(conn), *map(tuple, rows)]


# Schemas


@pytest.mark.parametrize("name", schema.ALL)
def test_every_reference_of_a_schema_leads_somewhere(name):
    resolver = schema.REGISTRY.resolver(f"{name}.json")
    for reference in references(schema.ALL[name]):
        resolver.lookup(reference)


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from references(member)


@pytest.mark.parametrize("name", schema.ALL)
def test_a_schema_is_known_by_its_file_name(name):
    assert schema.ALL[name]["$id"] == f"{name}.json"


def test_every_pattern_of_a_schema_has_its_own_words():
    patterns = set(_patterns(schema.ALL))
    instants = {pattern for pattern in patterns if "[Tt ]" in pattern}
    assert len(instants) == 1 and patterns - instants == set(schema.PATTERNS)


def _patterns(value):
    if isinstance(value, dict):
        yield from ([value["pattern"]] if isinstance(value.get("pattern"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from _patterns(member)


def test_the_instants_of_the_schemas_are_those_that_can_be_read():
    (pattern,) = {pattern for pattern in _patterns(schema.ALL) if "[Tt ]" in pattern}
    assert pattern == f"^{wire._INSTANT.pattern}$"


# Configuration


def test_the_readme_lists_every_variable():
    rows = re.findall(r"^\|\s*`([A-Z_]+)`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(variable for variable, _, _ in VARIABLES.values())


def test_all_wrong_and_missing_variables_are_named_at_once():
    wrong = {
        "PORT": "http",
        "TIME_ZONE": "Middle/Earth",
        "PORTAL_TIMEOUT_SECONDS": "0",
        "PORTAL_POLL_SECONDS": "NaN",
        "PORTAL_INTERMEDIARY": "perhaps",
        "PORTAL_RATE_SCALE": "fast",
        "PORTAL_API_BASE": "https://portal.example",
        "PORTAL_WEB_BASE": "portal.example",
    }
    with pytest.raises(ConfigError) as fault:
        read_config(wrong)
    named = [line.split()[0] for line in str(fault.value).splitlines()]
    missing = ["PORTAL_IDENTITY_BASE", "PORTAL_CLIENT_ID", "PORTAL_CLIENT_SECRET"]
    assert sorted(named) == sorted([*(set(wrong) - {"PORTAL_API_BASE"}), *missing])


def test_a_configuration_does_not_print_its_secrets():
    config = read_config({"PORTAL_CLIENT_SECRET": "hush", "DATABASE_URL": "postgresql://me:hush@db/x"})
    assert "hush" not in repr(config) and "hush" not in f"{config}"


def test_each_failpoint_stands_in_the_code():
    passed = re.findall(r'failpoints\.passed\("(\w+)"\)', "".join(path.read_text() for path in MODULES.values()))
    assert set(passed) == set(failpoints.NAMES)
