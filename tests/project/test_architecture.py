"""Import layers, and the consistency of code, schemas, SQL and documentation."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import asyncpg
import pytest

from service import errors, json_codec, schema
from service.config import SETTINGS, ConfigError, read_config
from service.db.pool import connected_pool
from service.db.statements import FUNCTIONS, sql
from service.db.transactions import Database
from service.documents import consolidation, states
from service.documents.kind import KINDS
from service.documents.signing import certificate
from tests.harness.failpoint_names import NAMES
from tests.harness.paths import ROOT

#: The layers from top to bottom. A module imports from its own layer and from layers below it.
#: A folder is a layer, and in service/submission each of its folders, too. Modules directly in
#: service/ belong to the lowest layer, except app.py.
LAYERS = (
    ("run", "service.commands"),
    ("service.app",),
    ("service.dashboard",),
    ("service.api",),
    ("service.submission.worker",),
    ("service.submission.operator",),
    ("service.submission.sending", "service.submission.following"),
    ("service.submission", "service.webhooks"),
    ("service.submission.machine",),
    ("service.http",),
    ("service.portal",),
    ("service.documents",),
    ("service.monitoring",),
    ("service.db",),
    ("service",),
)
#: Packages outside the layers, and what they may import.
APART = {"service.sandbox": {"service.documents.codes"}, "service.embedded_postgres": set()}


def _modules() -> Iterator[tuple[str, Path]]:
    """Yield (dotted name, path) of each module of the project. A package has its own name."""
    for path in [ROOT / "run.py", *sorted((ROOT / "service").rglob("*.py"))]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


MODULES = dict(_modules())


@cache
def parse(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(MODULES[module].read_text())


def layer_of(module: str) -> int:
    """Return the position of a module's layer, counted from the top."""
    fits = [
        (len(name), position)
        for position, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(fits)[1]


def package_apart(module: str) -> str | None:
    """Return the package outside the layers that a module belongs to."""
    return next((name for name in APART if module == name or module.startswith(f"{name}.")), None)


def imports(module: str) -> Iterator[str]:
    """Yield the project modules that a module imports, also inside functions."""
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            source = _source(module, node)
            inner = {f"{source}.{alias.name}" for alias in node.names} & MODULES.keys()
            yield from inner or {source} & MODULES.keys()


def _source(module: str, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module in `from ... import`."""
    if not node.level:
        return node.module or ""
    ups = node.level - (MODULES[module].name == "__init__.py")
    package = module.split(".")[: -ups or None]
    return ".".join([*package, *filter(None, [node.module])])


def test_every_folder_of_the_service_is_a_layer() -> None:
    folders = {f"service.{path.parent.name}" for path in (ROOT / "service").glob("*/__init__.py")}
    named = {name for names in LAYERS for name in names if name.count(".") == 1}
    assert folders == named - {"service.app"} | set(APART)


def test_package_init_files_are_empty() -> None:
    packages = [name for name, path in MODULES.items() if path.name == "__init__.py"]
    texts = {name: MODULES[name].read_text() for name in packages if not package_apart(name)}
    assert {name for name, text in texts.items() if len(text.splitlines()) > 1} == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_to_the_same_or_a_lower_layer(module: str) -> None:
    apart = package_apart(module)
    if apart:
        known = {name for name in imports(module) if package_apart(name) != apart}
        assert known <= APART[apart]
        return
    targets = [name for name in imports(module) if not package_apart(name)]
    assert [name for name in targets if layer_of(name) < layer_of(module)] == []


def _foreign_private_names(tree: ast.Module) -> Iterator[str]:
    """Yield `value._name` for private attributes of values other than the module's own objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            value = ast.unparse(node.value)
            if value not in ("self", "cls", "other"):
                yield f"{value}.{node.attr}"


def test_private_names_of_libraries_are_used_in_two_modules() -> None:
    """Tests pin what these rely on: test_aiohttp_internals.py, test_edge.py and test_silence.py."""
    public = {"os._exit", "sys._current_frames"}  # documented
    found = {
        module: names
        for module in MODULES
        if (names := set(_foreign_private_names(parse(module))) - public)
    }
    assert found == {
        "service.http.server": {
            "server._kwargs",
            "server._loop",
            "super()._make_server",
            "super()._prepare_headers",
        },
        "service.db.connections": {"connection._transport", "super()._introspect_types"},
    }


def _body_readers(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes of requests that give their body."""
    names = {"post", "multipart", "read", "text", "json", "content", "_payload", "_read_bytes"}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in names
            and ast.unparse(node.value) in ("request", "self.request", "called")
        ):
            yield node.attr


def test_one_module_reads_bodies_and_one_decodes_forms() -> None:
    found = {
        module: names
        for module in MODULES
        if not package_apart(module) and (names := set(_body_readers(parse(module))))
    }
    assert found == {"service.http.requests": {"content"}}
    decoding = {
        module
        for module, path in MODULES.items()
        if not package_apart(module) and "receive_body" in path.read_text()
    }
    assert decoding == {"service.http.requests", "service.http.forms"}


# SQL


#: Beginnings of the names of statements that the owner of the database runs.
OWNERS_STATEMENTS = ("migration",)


async def test_every_statement_runs_as_the_service_role(database: str) -> None:
    """`explain` checks names, types and privileges of a statement without running it.

    Functions that only SQL calls are left out.
    """
    called = {
        name for path in MODULES.values() for name in re.findall(r"\bsql\.(\w+)", path.read_text())
    }
    internal = {path.stem for path in FUNCTIONS.glob("*/*.sql")} - called
    failed = {}
    async with connected_pool(database, 1) as pool:
        for name, statement in sql.by_name.items():
            try:
                if not name.startswith(OWNERS_STATEMENTS) and name not in internal:
                    async with Database(pool).company(1) as conn:
                        await conn.fetch(
                            f"explain {statement.query}", *[None] * len(statement.variables)
                        )
            except asyncpg.PostgresError as error:
                failed[name] = str(error)
    assert failed == {}


async def test_statements_of_the_owner_can_be_prepared(owner: asyncpg.Connection) -> None:
    for name, statement in sql.by_name.items():
        if name.startswith(OWNERS_STATEMENTS):
            await owner.prepare(statement.query)


async def test_every_constraint_mapped_to_an_error_exists(owner: asyncpg.Connection) -> None:
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
        ("documents_status", get_args(states.DocumentStatus)),
        ("submitted_documents_status", get_args(states.SubmittedStatus)),
        ("submissions_state", get_args(states.SubmissionState)),
        ("documents_only_unlocked_deleted", set(states.DOCUMENT_TRANSITIONS) - states.LOCKED),
        ("einvoice_requests_status", schema.get_values("einvoice_request_status")),
        ("signing_certificates_issuer_form", certificate.ISSUER_FORMS),
        (
            "signing_certificates_issuer_form",
            schema.ALL["signing_certificate_update"]["properties"]["issuer_form"]["enum"],
        ),
        (
            "companies_registration_type",
            schema.ALL["company_update"]["properties"]["registration_type"]["enum"],
        ),
        ("events_type", schema.get_values("event_type")),
        ("integration_users_role", schema.get_values("role")),
        ("organization_members_role", schema.get_values("role")),
        (
            "documents_type",
            [
                *schema.get_values("invoice_type"),
                *schema.get_values("note_type"),
                *schema.get_values("consolidated_invoice_type"),
            ],
        ),
        ("submitted_documents_kind", [kind.name for kind in KINDS]),
    ],
)
async def test_check_constraint_lists_the_values_of_the_code(
    owner: asyncpg.Connection, constraint: str, words: Any
) -> None:
    text: Any = await owner.fetchval(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = $1", constraint
    )
    assert set(re.findall(r"'([\w.]+)'", text)) == set(words)


def test_families_are_the_types_of_consolidated_invoices() -> None:
    assert list(consolidation.FAMILIES) == list(schema.get_values("consolidated_invoice_type"))


async def test_unique_index_covers_the_locked_states(owner: asyncpg.Connection) -> None:
    query = "select indexdef from pg_indexes where indexname = $1"
    text: Any = await owner.fetchval(query, "submitted_documents_one_live_per_document")
    assert text.startswith("CREATE UNIQUE INDEX")
    assert set(re.findall(r"'(\w+)'", text)) == states.LOCKED


@pytest.mark.parametrize(
    "moves, values",
    [
        (states.DOCUMENT_TRANSITIONS, states.DocumentStatus),
        (states.SUBMITTED_TRANSITIONS, states.SubmittedStatus),
        (states.SUBMISSION_TRANSITIONS, states.SubmissionState),
    ],
)
def test_every_state_has_transitions_to_known_states(moves: Any, values: Any) -> None:
    assert set(moves) == set(get_args(values))
    assert set().union(*moves.values()) <= set(moves)


def test_every_document_status_maps_to_an_invoice_status() -> None:
    assert set(states.DOCUMENT_STATUSES) == set(states.SUBMITTED_TRANSITIONS)
    assert set(states.DOCUMENT_STATUSES.values()) == set(states.DOCUMENT_TRANSITIONS)


# Schemas


@pytest.mark.parametrize("name", schema.ALL)
def test_every_schema_reference_resolves(name: str) -> None:
    resolver = schema.REGISTRY.resolver(f"{name}.json")
    for reference in references(schema.ALL[name]):
        resolver.lookup(reference)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from references(member)


def test_every_schema_pattern_has_an_error_message() -> None:
    patterns = set(_patterns(schema.ALL))
    instants = {pattern for pattern in patterns if "[Tt ]" in pattern}
    assert len(instants) == 1 and patterns - instants == set(schema.PATTERNS)


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["pattern"]] if isinstance(value.get("pattern"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from _patterns(member)


def test_schema_pattern_of_instants_equals_the_parser_pattern() -> None:
    (pattern,) = {pattern for pattern in _patterns(schema.ALL) if "[Tt ]" in pattern}
    assert pattern == f"^{json_codec._INSTANT.pattern}$"


# Configuration


def test_generated_pages_are_current() -> None:
    command = [sys.executable, ".ci/write_docs.py", "--check"]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_invalid_and_missing_variables_are_reported_together() -> None:
    wrong = {
        "PORT": "http",
        "TIME_ZONE": "Middle/Earth",
        "PORTAL_TIMEOUT_SECONDS": "0",
        "PORTAL_POLL_SECONDS": "NaN",
        "PORTAL_INTERMEDIARY": "perhaps",
        "PORTAL_RATE_SCALE": "fast",
        "TRUSTED_PROXIES": "10.0.0.1, proxy.example",
        "DRAIN_SECONDS": "301",
        "PORTAL_API_BASE": "https://portal.example",
        "PORTAL_WEB_BASE": "portal.example",
    }
    with pytest.raises(ConfigError) as raised:
        read_config(wrong)
    named = [line.split()[0] for line in str(raised.value).splitlines()]
    missing = ["PORTAL_IDENTITY_BASE", "PORTAL_CLIENT_ID", "PORTAL_CLIENT_SECRET"]
    assert sorted(named) == sorted([*(set(wrong) - {"PORTAL_API_BASE"}), *missing])


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgresql://me:hush@db/x\n")
    assert read_config({"DATABASE_URL_FILE": str(path)}).database_url == path.read_text().strip()
    secrets = {setting.file_variable for setting in SETTINGS.values() if setting.parser.is_secret}
    assert {"SECRET_KEY_FILE", "PORTAL_CLIENT_SECRET_FILE"} < secrets
    assert not secrets & {setting.variable for setting in SETTINGS.values()}


def test_secret_file_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff")
    wrong = {
        "DATABASE_URL": "postgresql:///x",
        "DATABASE_URL_FILE": str(path),
        "PORTAL_CLIENT_SECRET_FILE": str(tmp_path / "none"),
        "SIGNING_KEY_PASSWORD_FILE": str(path),
    }
    with pytest.raises(ConfigError) as raised:
        read_config(wrong)
    assert str(raised.value).splitlines() == [
        "DATABASE_URL and DATABASE_URL_FILE must not both be set",
        f"PORTAL_CLIENT_SECRET cannot be read from {tmp_path / 'none'}: No such file or directory",
        f"SIGNING_KEY_PASSWORD cannot be read from {path}: it is not UTF-8 text",
    ]


def test_repr_of_the_configuration_hides_secrets() -> None:
    config = read_config(
        {"PORTAL_CLIENT_SECRET": "hush", "DATABASE_URL": "postgresql://me:hush@db/x"}
    )
    assert "hush" not in repr(config) and "hush" not in f"{config}"


def test_every_failpoint_is_reached_by_the_code() -> None:
    passed = re.findall(
        r'failpoints\.reach\("(\w+)"\)', "".join(path.read_text() for path in MODULES.values())
    )
    assert set(passed) == {*NAMES}
