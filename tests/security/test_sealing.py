"""Webhook secrets at rest: encrypted, bound to one company, and re-encrypted for a new key."""

import asyncio
import base64
import stat
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest

from service.commands.bootstrap import _load_or_create_key, run_command
from service.commands.certificates import reencrypt_all
from service.config import Config, read_config
from service.db.encryption import Vault
from service.errors import OperatorError
from service.http.api_keys import new_key
from tests.api_invoices import (
    create_delivery,
    create_invoice,
    create_one_of_each,
    create_submitted_invoice,
)
from tests.api_requests import (
    CERTIFICATE,
    KEYLESS,
    OWN_CLIENT,
    PORTAL_CREDENTIALS,
    add_own_client,
    create_record,
    expect,
    fill_path,
    list_routes,
    request_json,
)
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.fixtures_service import RunCommand
from tests.fixtures_webhooks import LOCAL, Receiver, create_endpoint, wait_for_delivery
from tests.harness.certificates import issued
from tests.harness.environments import GENEROUS
from tests.harness.signatures import is_signed_by
from tests.operations.test_commands import read_result

OLD = {"SECRET_KEY": GENEROUS["SECRET_KEY"]}
NEW = {"SECRET_KEY": base64.b64encode(b"n" * 32).decode()}
ROTATING = {**NEW, "SECRET_KEY_PREVIOUS": OLD["SECRET_KEY"]}
SIGNED = {**LOCAL, "PORTAL_DOCUMENT_VERSION": "1.1"}
NO_SECRET_KEY = (
    409,
    {
        "message": "The service cannot store secrets: SECRET_KEY is not set. Ask the operator.",
        "code": "encryption_not_configured",
    },
)


def decode_secret(secret: str) -> bytes:
    """Return the bytes of a secret as shown to its company."""
    return base64.b64decode(secret.removeprefix("whsec_"))


async def is_signed_with(receiver: Receiver, api: Client, secret: str) -> bool:
    """Return whether the next delivery is signed with the secret."""
    before = len(receiver.got)
    await create_invoice(api)
    headers, body = (await until(lambda: _got(receiver, before)))[0]
    return is_signed_by(headers, body, secret)


async def _got(receiver: Receiver, before: int) -> list[tuple[Mapping[str, str], str]]:
    return receiver.got[before:]


async def test_the_database_holds_no_readable_secret(
    start: StartService, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    api = await start(**LOCAL)
    webhook_id, secret = await create_endpoint(api, receiver.url)
    _, body = await request_json(api, "POST", f"/api/webhooks/{webhook_id}/rotate-secret", json={})
    rows = await owner.fetch("select sealed_secret from webhook_secrets")
    assert len(rows) == 2
    for shown in (secret, body["data"]["secret"]):
        assert not any(decode_secret(shown) in row["sealed_secret"] for row in rows)
        assert await is_signed_with(receiver, api, shown)


async def test_without_a_secret_key_no_secret_is_stored(
    start: StartService, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    api = await start(**LOCAL)
    webhook_id, _ = await create_endpoint(api, receiver.url)
    await api.close()
    api = await start(**{**LOCAL, "SECRET_KEY": ""})
    found = await request_json(api, "POST", "/api/webhooks", json={"url": receiver.url})
    assert found == NO_SECRET_KEY
    given = await request_json(api, "POST", f"/api/webhooks/{webhook_id}/rotate-secret", json={})
    assert given == NO_SECRET_KEY
    assert await owner.fetchval("select count(*) from webhook_secrets") == 1


async def test_a_secret_in_the_row_of_another_company_is_undecryptable(
    start: StartService,
    company: Company,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    receiver: Receiver,
) -> None:
    api = await start(**LOCAL)
    await create_endpoint(api, receiver.url)
    other = await make_company(environment)
    theirs = await start(other, **LOCAL)
    webhook_id, _ = await create_endpoint(theirs, receiver.url)
    await owner.execute(
        "update webhook_secrets set sealed_secret ="
        " (select sealed_secret from webhook_secrets where company_id = $1) where company_id = $2",
        *[company.id, other.id],
    )
    await create_invoice(theirs)
    assert (await wait_for_delivery(theirs, webhook_id, "Failed"))["error"] == "secret"
    assert receiver.got == []


async def test_secrets_are_reencrypted_for_a_new_secret_key(
    start: StartService,
    environment: dict[str, str],
    receiver: Receiver,
    command: RunCommand,
    sandbox: Sandbox,
) -> None:
    await add_own_client(sandbox)
    api = await start(**SIGNED)
    _, secret = await create_endpoint(api, receiver.url)
    await expect(api, 200, "PUT", CERTIFICATE, json=issued().pair)
    await expect(api, 200, "PUT", PORTAL_CREDENTIALS, json=OWN_CLIENT)
    await api.close()
    alone, rotating = [read_config({**environment, **keys}) for keys in (NEW, ROTATING)]
    assert await run_command(alone, reencrypt_all) == {"sealed": 0, "unopenable": 3}
    assert await read_result(command("reseal", **ROTATING)) == {"sealed": 3, "unopenable": 0}
    assert await run_command(rotating, reencrypt_all) == {"sealed": 0, "unopenable": 0}
    api = await start(**{**SIGNED, **NEW})
    assert await is_signed_with(receiver, api, secret)
    await create_submitted_invoice(api)
    assert [entry["clientId"] for entry in await sandbox.ledger()] == [OWN_CLIENT["client_id"]]


async def test_reencryption_without_a_key_is_refused(config: Config) -> None:
    with pytest.raises(
        OperatorError, match=r"SECRET_KEY is missing: secrets are encrypted with it. Make one"
    ):
        await run_command(config, reencrypt_all)


async def test_no_response_contains_a_stored_secret(start: StartService, sandbox: Sandbox) -> None:
    await add_own_client(sandbox)
    api = await start(**GENEROUS)
    ids = await create_one_of_each(api)
    made = await create_record(api, "/api/webhooks", url="http://127.0.0.1:9/")
    ids["/api/webhooks"], pair = made["id"], issued().pair
    await expect(api, 200, "PUT", CERTIFICATE, json=pair)
    status, given = await request_json(api, "PUT", PORTAL_CREDENTIALS, json=OWN_CLIENT)
    assert status == 200 and OWN_CLIENT["client_secret"] not in str(given)
    shown = await create_delivery(api, made["id"])
    lines = [line for line in pair["key"].splitlines() if len(line) == 64]
    for _, path in list_routes(api, "GET"):
        if path not in KEYLESS and "integrations" not in path:
            record_id = ids.get(path.partition("/{")[0], 1)
            async with api.get(fill_path(path, record_id, shown)) as response:
                text = (await response.read()).decode("latin-1")
            assert made["secret"] not in text and decode_secret(made["secret"]).hex() not in text, (
                path
            )
            assert OWN_CLIENT["client_secret"] not in text, path
            assert len(lines) > 20 and not any(line in text for line in lines), path


def test_objects_with_secrets_hide_them_in_their_repr() -> None:
    key, vault = new_key(live=True), Vault(b"k" * 32)
    assert key.text not in repr(key)
    assert repr(key.digest) not in repr(key)
    assert "kkkk" not in repr(vault)


async def test_an_unconfigured_installation_creates_its_own_key(tmp_path: Path) -> None:
    path = tmp_path / "secret-key"
    keys = await asyncio.gather(*[asyncio.to_thread(_load_or_create_key, path) for _ in range(8)])
    assert len(set(keys)) == 1 and len(keys[0]) == 32 and _load_or_create_key(path) == keys[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret-key"]
