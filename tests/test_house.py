"""What holds for the whole house: which way imports point, and that code, schemas, SQL and README agree."""

import ast
import re
from pathlib import Path

import asyncpg
import pytest

from service import consolidation, errors, failpoints, schema, states, wire
from service.config import VARIABLES, ConfigError, read_config
from service.db import Database, connected_pool
from service.portal import certificate
from service.statements import sql

ROOT = Path(__file__).resolve().parent.parent

#: From top to bottom: a module may import from its own row and from those below. A package stands for all in it.
ROWS = (
    ("commands", {"run", "service.commands"}),
    ("the portal's stand-in", {"service.sandbox"}),
    ("wiring", {"service.app", "service.background"}),
    ("surfaces", {"service.handlers"}),
    ("flows", {"service.submission", "service.tins", "service.webhooks.delivery", "service.resealing"}),
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
            "service.conditions",
            "service.watchdog",
            "service.portal.client",
            "service.portal.clock",
            "service.portal.connections",
            "service.portal.logins",
            "service.portal.answers",
            "service.portal.quota",
            "service.webhooks.lookup",
        },
    ),
    (
        "database",
        {
            "service.connections",
            "service.db",
            "service.keeper",
            "service.schema_objects",
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
            "service.cancellation",
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
    ("wire", {"service.beside", "service.wire", "service.errors", "service.config", "service.failpoints"}),
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
        union
        select tgname from pg_trigger
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
