"""Commands of run.py: output, effects, and one-line error messages."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from service.db.migrations import MIGRATIONS, migrate
from service.db.schema_objects import load_objects
from service.db.statements import sql
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import CERTIFICATE, expect, request_json
from tests.conftest import Client, Company, StartService, until
from tests.fixtures_service import RunCommand
from tests.harness.certificates import issued, key_text, rsa_key
from tests.harness.databases import create_database
from tests.harness.environments import GENEROUS

NAMES = [
    *sorted(path.name for path in MIGRATIONS.glob("*.sql")),
    *[item.file for item in load_objects()],
]
COMMANDS = (
    "serve worker sandbox migrate add-company verify-tin share-tin unshare-tin "
    "add-key revoke-key set-certificate audit reseal sql import-codes reconcile "
    "hold-sending attention resolve-finding resolve-submission"
)


async def read_result(running: Awaitable[Any]) -> Any:
    """Return the JSON object that a command prints."""
    done = await running
    assert (done.code, done.err) == (0, ""), done.err
    return json.loads(done.out)


async def read_error(running: Awaitable[Any]) -> str:
    """Return the one-line error message of a command that fails."""
    done = await running
    assert (done.code, done.out) == (1, ""), done
    (wording,) = done.err.splitlines()
    return wording


async def with_key(api: Client, key: str) -> int:
    return (await request_json(api, "GET", "/api/invoices", headers={"X-API-Key": key}))[0]


# Companies and keys


async def test_company_and_key_made_by_commands_work(
    command: RunCommand, start: StartService, owner: asyncpg.Connection
) -> None:
    made = await read_result(
        command(
            "add-company", "--name", "Kedai Ü Sdn. Bhd.", "--tin", "C123", "--zip-code", "30000"
        )
    )
    assert set(made) == {"id"}
    row: Any = await owner.fetchrow(
        "select id, name, tin_code, zip_code, msic_code from companies order by id desc"
    )
    assert tuple(row) == (made["id"], "Kedai Ü Sdn. Bhd.", "C123", "30000", None)
    key = await read_result(command("add-key", "--company", made["id"], "--name", "till"))
    assert set(key) == {"key", "key_id", "company_id"} and key["company_id"] == made["id"]
    assert key["key"].split("_")[2] == key["key_id"]
    assert await create_invoice(await start(Company(made["id"], key["key"], key["key_id"])))


@pytest.mark.parametrize(
    "options, wording",
    [
        (("--tin", "C1\nX: 1"), "tin_code must be letters, digits, spaces and hyphens."),
        (("--tin", ""), "tin_code must be letters, digits, spaces and hyphens."),
        (("--tin", "C" * 41), "tin_code must have at most 40 characters."),
        (("--name", " "), "name must not be blank."),
        (("--country", "MY", "--state", "Selangor"), "the nearest code is"),
        (
            ("--registration-type", "IC"),
            "registration_type must be one of BRN, NRIC, PASSPORT, ARMY.",
        ),
        (
            ("--sst-registration-number", "1" * 36),
            "sst_registration_number must have at most 35 characters.",
        ),
        (("--msic-code", "5610"), "msic_code must be five digits."),
        (("--phone", "1" * 41, "--city", "x" * 51), "city must have at most 50 characters. "),
    ],
)
async def test_add_company_rejects_the_values_that_the_api_rejects(
    command: RunCommand,
    api: Client,
    owner: asyncpg.Connection,
    options: tuple[Any, ...],
    wording: str,
) -> None:
    """The message holds every violation; PUT /api/companies reports the same ones."""
    message = await read_error(command("add-company", "--name", "A", "--tin", "C123", *options))
    assert wording in message
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    body = dict(
        zip(("tin_code" if name == "tin" else name for name in names), options[1::2], strict=False)
    )
    refusal = await expect(api, 422, "PUT", "/api/companies", json=body)
    messages = {violation["message"] for violation in refusal["errors"]}
    assert messages <= set(re.split(r"(?<=\.) ", message))
    assert await owner.fetchval("select count(*) from companies") == 1


async def test_add_company_reports_all_violations_together(command: RunCommand) -> None:
    options = ("--phone", "1" * 41, "--country", "MY", "--registration-type", "IC")
    message = await read_error(command("add-company", "--name", "A", "--tin", "C 1", *options))
    assert all(
        words in message
        for words in ("phone must have", "registration_type must be", '"MY" is not in the table')
    )
    assert "registration types" not in message  # reported only once


async def test_argument_that_is_not_utf_8_is_rejected(command: RunCommand) -> None:
    message = await read_error(
        command("add-company", "--name", os.fsdecode(b"\xff"), "--tin", "C1")
    )
    assert message == "--name must be UTF-8 text."


async def test_violated_constraint_is_reported_as_a_rejected_value(
    command: RunCommand, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table companies add constraint no_a check (name <> 'A')")
    message = await read_error(command("add-company", "--name", "A", "--tin", "C1"))
    assert message.startswith("The database does not accept a value: ") and "no_a" in message


async def test_key_with_an_expiry_is_valid_until_then(
    command: RunCommand, api: Client, company: Company, owner: asyncpg.Connection
) -> None:
    add = ("add-key", "--company", company.id, "--expires")
    message = await read_error(command(*add, "2020-01-01T00:00:00Z"))
    assert message.strip() == "--expires must be in the future."
    key = (await read_result(command(*add, "2999-01-01T00:00:00+08:00")))["key"]
    assert await with_key(api, key) == 200
    await owner.execute("update api_keys set expires_at = now()")
    await until(lambda: with_key(api, key), lambda status: status == 401)


#: The rest of the names of the variables of a portal.
PORTAL_VARIABLES = ("API_BASE", "IDENTITY_BASE", "WEB_BASE", "CLIENT_ID", "CLIENT_SECRET")


@pytest.mark.parametrize(
    "base, start",
    [
        ("", "einv_test_"),
        ("http://127.0.0.1:8124", "einv_test_"),
        ("https://portal.example", "einv_live_"),
    ],
)
async def test_key_made_for_a_sandbox_is_a_test_key(
    command: RunCommand, company: Company, base: str, start: str
) -> None:
    names = ("API_BASE", "IDENTITY_BASE", "WEB_BASE") if base else PORTAL_VARIABLES
    portal = {f"PORTAL_{name}": base for name in names}
    made = await read_result(command("add-key", "--company", company.id, **portal))
    assert made["key"].startswith(start)


@pytest.fixture
def pair(tmp_path: Path) -> list[str | Path]:
    """Return options that name the files of a certificate and its encrypted key."""
    texts = {
        "certificate": issued().certificate_pem,
        "key": key_text(rsa_key(), "hush"),
        "password-file": "hush\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return [part for name in texts for part in (f"--{name}", tmp_path / name)]


async def test_certificate_set_by_command_is_used(
    command: RunCommand, start: StartService, company: Company, pair: Any
) -> None:
    secret = {"SECRET_KEY": GENEROUS["SECRET_KEY"]}
    setting = ("set-certificate", "--company", company.id, *pair)
    found = await read_result(command(*setting, "--issuer-form", "encoded", **secret))
    assert found["issuer"].startswith("C=MY, ")
    made = await read_result(command(*setting, **secret))
    assert made["issuer"].endswith(", C=MY") and made["warning"] is None and made["days_left"] > 300
    api = await start(PORTAL_DOCUMENT_VERSION="1.1", **secret)
    assert (await request_json(api, "GET", CERTIFICATE))[1]["data"] == made
    await create_valid_invoice(api)


async def test_invalid_certificate_is_reported_in_one_line(
    command: RunCommand, company: Company, pair: Any
) -> None:
    secret, own = (
        {"SECRET_KEY": GENEROUS["SECRET_KEY"]},
        ("set-certificate", "--company", company.id, *pair),
    )
    found = await read_error(command(*own))
    assert found.startswith("SECRET_KEY is missing: the private key is encrypted with it. Make one")
    given = await read_error(command(*own[:-2], **secret))
    assert given == "password is required: the key is encrypted."
    answer = await read_error(command(*own, "--key", pair[1], **secret))
    assert answer == "key must be an RSA private key in PEM."
    assert "No such file" in await read_error(command(*own, "--key", "nowhere.pem", **secret))
    unknown = ("set-certificate", "--company", "999", *pair)
    assert await read_error(command(*unknown, **secret)) == "There is no company 999."


@pytest.mark.parametrize(
    "arguments, wording",
    [
        (("add-key", "--company", "999"), "There is no company 999."),
        (("add-key", "--company", 2**63), "The database does not accept a value: "),
        (("audit", "--company", 2**63), "The database does not accept a value: "),
        (("audit", "--company", 1, "--last", 2**63), "There is no company 1."),
        (("resolve-finding", 2**63, "--note", "x"), "The database does not accept a value: "),
        (("verify-tin", "--company", 2**63), "The database does not accept a value: "),
        (
            ("resolve-submission", 1, "--company", 1, "--received", "\udcff", "--note", "x"),
            "--uuids must be UTF-8 text.",
        ),
        (
            ("revoke-key", "unknown"),
            "There is no key unknown; "
            "a key id is what follows einv_live_ or einp_live_, up to the next underscore.",
        ),
        (("import-codes", "nothing.json"), "nothing.json is not named after a code list: "),
        (
            ("import-codes", "units.json"),
            "units.json is not a JSON array of codes (FileNotFoundError: ",
        ),
        (("sql", "nothing"), "There is no statement nothing. There are: "),
    ],
)
async def test_command_error_is_reported_in_one_line(
    command: RunCommand, arguments: tuple[Any, ...], wording: str
) -> None:
    assert (await read_error(command(*arguments))).startswith(wording)


# The database


@pytest.fixture
async def empty(cluster: str) -> AsyncIterator[str]:
    async with create_database(cluster) as url:
        yield url


async def test_migrate_prints_applied_files_and_is_idempotent(
    command: RunCommand, empty: str
) -> None:
    first = await command("migrate", DATABASE_URL=empty)
    assert (first.code, first.out.splitlines(), first.err) == (0, NAMES, "")
    again = await command("migrate", DATABASE_URL=empty)
    assert (again.code, again.out, again.err) == (0, "nothing to apply\n", "")


async def test_concurrent_migrations_run_once(empty: str) -> None:
    done = await asyncio.gather(*[migrate(empty) for _ in range(8)])
    assert sorted(done) == [[]] * 7 + [NAMES]


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
async def test_database_of_an_unreleased_version_is_rejected(
    command: RunCommand, owner: asyncpg.Connection, name: str
) -> None:
    await owner.execute("update schema_migrations set sha256 = '\\x00' where name like '0001%'")
    message = await read_error(command(name))
    assert "has changed since it was applied to this database" in message
    assert "set DATABASE_URL to a new, empty database" in message


async def test_every_command_migrates_the_database(command: RunCommand, empty: str) -> None:
    assert (
        await read_result(command("add-company", "--name", "A", "--tin", "C1", DATABASE_URL=empty))
    )["id"] == 1


async def test_invalid_variables_are_reported_one_per_line(command: RunCommand) -> None:
    done = await command("worker", PORT="http", LOG_LEVEL="loud")
    assert done.code == 1 and [line.split()[0] for line in done.err.splitlines()] == [
        "PORT",
        "LOG_LEVEL",
    ]


async def test_help_lists_all_commands(command: RunCommand) -> None:
    done = await command("--help")
    assert done.code == 0
    assert all(
        f"\n    {name} " in done.out or f"\n    {name}\n" in done.out for name in COMMANDS.split()
    )


async def test_unknown_command_prints_the_usage(command: RunCommand) -> None:
    for arguments in (("serv",), ("add-key", "--company", "one")):
        done = await command(*arguments)
        assert done.code == 2 and done.err.startswith("usage: ")


# Statements for psql


async def test_sql_command_prints_a_statement_for_psql(command: RunCommand) -> None:
    done = await command("sql", "invoice_get")
    assert done.out == sql.by_name["invoice_get"].text + "\n"
    assert ":company_id" in done.out and done.out.endswith(";\n")
