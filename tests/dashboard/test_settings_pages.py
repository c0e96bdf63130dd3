"""The settings pages of webhooks, of the signing certificate and of the portal."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from service.api.webhooks import MOST
from service.commands.bootstrap import run_command
from service.commands.companies import add_key
from service.config import Config
from service.http.api_keys import MOST_KEYS, TOO_MANY_KEYS
from tests.api_invoices import create_invoice
from tests.api_reads import get_json, wait_for_lock
from tests.api_requests import CERTIFICATE, OWN_CLIENT, PORTAL_CREDENTIALS, add_own_client, expect
from tests.conftest import Client, Company, Sandbox, StartService
from tests.dashboard.test_invoice_form import read_etag
from tests.fixtures_dashboard import SignIn
from tests.fixtures_webhooks import (
    LOCAL,
    Receiver,
    create_endpoint,
    wait_for_delivery,
)
from tests.harness.certificates import issued, key_text, rsa_key
from tests.harness.signatures import is_signed_by
from tests.harness.visitors import Visitor
from tests.harness.waiting import until
from tests.portal.test_refused_logins import change_client

WEBHOOKS, SIGNING, PORTAL = "/settings/webhooks", "/settings/certificate", "/settings/portal"
PLACE = "https://hooks.example.com/in"
SCRIPT = "<script>document.title='broken'</script>"
#: Forms that need a recent password, with the page to which the person returns.
SECRETS = {
    WEBHOOKS: WEBHOOKS,
    f"{WEBHOOKS}/1": f"{WEBHOOKS}/1",
    f"{WEBHOOKS}/1/enable": f"{WEBHOOKS}/1",
    f"{WEBHOOKS}/1/disable": f"{WEBHOOKS}/1",
    f"{WEBHOOKS}/1/rotate": f"{WEBHOOKS}/1",
    f"{WEBHOOKS}/1/delete": f"{WEBHOOKS}/1",
    SIGNING: SIGNING,
    f"{SIGNING}/remove": SIGNING,
    f"{PORTAL}/credentials": PORTAL,
    f"{PORTAL}/credentials/remove": PORTAL,
    "/settings/keys": "/settings/keys",
}
_SECRET = re.compile(r'id="new-secret">([^<]+)<')


@pytest.fixture
async def site(start: StartService) -> Client:
    """A client of a service that delivers to loopback."""
    return await start(**LOCAL)


def _find_secret(text: str) -> str:
    found = _SECRET.search(text)
    assert found, text
    return found[1]


async def _list_endpoints(site: Client) -> list[dict[str, object]]:
    return (await get_json(site, "/api/webhooks"))["data"]


async def test_a_new_webhook_shows_its_secret_once(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    await admin.get(WEBHOOKS)
    assert "No webhooks yet." in admin.text
    await admin.post(WEBHOOKS, {"url": f" {receiver.url} "})
    secret = _find_secret(admin.text)
    assert admin.status == 200 and secret.startswith("whsec_")
    [endpoint] = await _list_endpoints(site)
    assert (endpoint["url"], endpoint["types"], endpoint["enabled"]) == (receiver.url, [], True)
    await create_invoice(site)
    [(headers, body)] = await receiver.gets(1)
    assert is_signed_by(headers, body, secret)
    for path in (WEBHOOKS, f"{WEBHOOKS}/{endpoint['id']}"):
        await admin.get(path)
        assert receiver.url in admin.text and secret not in admin.text


async def test_the_box_of_the_record_is_stored(admin: Visitor, site: Client) -> None:
    await admin.fill_in(WEBHOOKS, {"url": PLACE, "include_record": "on"})
    [endpoint] = await _list_endpoints(site)
    assert endpoint["include_record"] is True
    place = f"{WEBHOOKS}/{endpoint['id']}"
    await admin.get(place)
    assert "Event and record" in admin.text
    assert re.search(r'name="include_record"[^>]* checked', admin.text)
    await admin.post(place, {"url": PLACE})
    [endpoint] = await _list_endpoints(site)
    assert endpoint["include_record"] is False


async def test_the_selected_event_types_of_a_webhook_are_stored(
    admin: Visitor, site: Client
) -> None:
    webhook, _ = await create_endpoint(site, PLACE, description="Shop")
    place = f"{WEBHOOKS}/{webhook}"
    await admin.get(place)
    token = admin.text.split('name="form_token" value="')[1].split('"')[0]
    chosen = ["invoice.valid", "company.updated"]
    fields = [("form_token", token), ("url", PLACE + "/2"), *(("types", each) for each in chosen)]
    async with admin._session.post(site.make_url(place), data=fields) as response:
        assert response.url.path == place and "The changes are saved." in await response.text()
    [endpoint] = await _list_endpoints(site)
    assert (endpoint["url"], endpoint["types"]) == (PLACE + "/2", chosen)
    assert endpoint["description"] == "Shop"
    await admin.get(place)
    assert re.findall(r'value="([^"]+)" checked', admin.text) == chosen
    await admin.post(place, {"url": PLACE})
    [endpoint] = await _list_endpoints(site)
    assert endpoint["types"] == []


@pytest.mark.parametrize(
    "fields, field, reason",
    [
        ({"url": "ftp://example.com"}, "url", "url must start with https://."),
        ({"url": ""}, "url", "url"),
        ({"url": PLACE, "types": "invoice.lost"}, "types", "types"),
    ],
)
async def test_violations_of_a_webhook_are_shown_at_their_fields(
    admin: Visitor, site: Client, fields: dict[str, str], field: str, reason: str
) -> None:
    webhook, _ = await create_endpoint(site, PLACE)
    for path in (WEBHOOKS, f"{WEBHOOKS}/{webhook}"):
        await admin.fill_in(path, fields)
        assert admin.status == 422 and 'role="alert"' not in admin.text
        assert reason in admin.text.split(f'id="{field}-wrong">')[1].split("</p>")[0]
        assert f'value="{fields["url"]}"' in admin.text
    assert [each["url"] for each in await _list_endpoints(site)] == [PLACE]


async def test_a_webhook_form_does_not_overwrite_an_unseen_change(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    webhook, _, place = await open_endpoint(admin, site, receiver)
    etag = read_etag(admin.text)
    await create_invoice(site)
    await wait_for_delivery(site, webhook, "Delivered")
    await admin.post(place, {"url": f"{PLACE}/1", "etag": etag})
    assert "The changes are saved." in admin.text
    await admin.post(place, {"url": f"{PLACE}/2", "etag": etag})
    assert admin.status == 412 and "Somebody has changed this" in admin.words
    assert [each["url"] for each in await _list_endpoints(site)] == [f"{PLACE}/1"]


async def test_the_limit_of_webhooks_is_shown_as_an_alert(admin: Visitor, site: Client) -> None:
    for _ in range(MOST):
        await create_endpoint(site, PLACE)
    await admin.fill_in(WEBHOOKS, {"url": PLACE + "/21"})
    assert admin.status == 409
    assert f'role="alert">A company can have at most {MOST} webhooks.' in admin.text
    assert f'value="{PLACE}/21"' in admin.text


async def test_a_webhook_is_disabled_and_enabled(admin: Visitor, site: Client) -> None:
    webhook, _ = await create_endpoint(site, PLACE)
    place = f"{WEBHOOKS}/{webhook}"
    await admin.get(place)
    for action, is_enabled in (("disable", False), ("enable", True)):
        await admin.post(f"{place}/{action}")
        assert admin.path == place and "The changes are saved." in admin.text
        assert (await get_json(site, f"/api/webhooks/{webhook}"))["enabled"] is is_enabled


async def open_endpoint(admin: Visitor, site: Client, receiver: Receiver) -> tuple[int, str, str]:
    """Create a webhook and open its page. Return its id, its secret and its place."""
    webhook, secret = await create_endpoint(site, receiver.url)
    place = f"{WEBHOOKS}/{webhook}"
    await admin.get(place)
    return webhook, secret, place


async def test_a_delivery_is_shown_and_redelivered(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    webhook, _, place = await open_endpoint(admin, site, receiver)
    assert "No deliveries yet." in admin.text
    await create_invoice(site)
    delivery = await wait_for_delivery(site, webhook, "Delivered")
    await admin.get(place)
    row = admin.text.split("<tbody>")[1]
    assert "invoice.created" in row and ">Delivered</span>" in row and ">200" in row
    again = f"{place}/deliveries/{delivery['id']}/redeliver?page=1"
    assert f'action="{again}"' in row
    await admin.post(again)
    assert admin.path == place and "The event will be delivered again." in admin.text
    (first, _), (second, _) = await receiver.gets(2)
    assert first["webhook-id"] == second["webhook-id"]


async def test_a_redelivery_of_a_disabled_webhook_is_refused(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    webhook, _ = await create_endpoint(site, receiver.url)
    await create_invoice(site)
    delivery = await wait_for_delivery(site, webhook, "Delivered")
    place = f"{WEBHOOKS}/{webhook}"
    await admin.fill_in(place, path=f"{place}/disable")
    await admin.post(f"{place}/deliveries/{delivery['id']}/redeliver")
    assert admin.status == 409
    assert 'role="alert">The webhook is disabled; enable it first.' in admin.text
    await admin.post(f"{place}/deliveries/999999999/redeliver")
    assert admin.status == 404


async def test_the_delivery_log_has_pages(admin: Visitor, site: Client, receiver: Receiver) -> None:
    webhook, _ = await create_endpoint(site, receiver.url, types=["invoice.created"])
    for _ in range(26):
        await create_invoice(site)
    path = f"/api/webhooks/{webhook}/deliveries"
    await until(lambda: get_json(site, path), lambda found: found["meta"]["total"] == 26)
    place = f"{WEBHOOKS}/{webhook}"
    await admin.get(place)
    assert admin.text.count("/redeliver?page=1") == 25 and f'"{place}?page=2"' in admin.text
    await admin.get(f"{place}?page=2")
    assert admin.text.count("/redeliver?page=2") == 1 and f'"{place}?page=1"' in admin.text


async def test_a_rotated_secret_is_shown_once_and_signs(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    _, former, place = await open_endpoint(admin, site, receiver)
    await admin.post(f"{place}/rotate")
    secret = _find_secret(admin.text)
    assert secret != former and former not in admin.text
    assert "signed with the former secret as well until <time" in admin.text
    await admin.get(place)
    assert secret not in admin.text
    await create_invoice(site)
    [(headers, body)] = await receiver.gets(1)
    assert is_signed_by(headers, body, secret) and is_signed_by(headers, body, former)


async def test_a_deleted_webhook_is_gone(admin: Visitor, site: Client) -> None:
    webhook, _ = await create_endpoint(site, PLACE)
    place = f"{WEBHOOKS}/{webhook}"
    await admin.fill_in(place, path=f"{place}/delete")
    assert admin.path == WEBHOOKS and "The webhook is deleted." in admin.text
    assert await _list_endpoints(site) == []
    await admin.get(place)
    assert admin.status == 404


async def test_script_in_the_texts_of_a_webhook_is_escaped(
    admin: Visitor, site: Client, receiver: Receiver
) -> None:
    url = f"{receiver.url}?{SCRIPT}"
    webhook, _ = await create_endpoint(site, url, description=SCRIPT)
    for path in (WEBHOOKS, f"{WEBHOOKS}/{webhook}"):
        await admin.get(path)
        assert SCRIPT not in admin.text and SCRIPT in admin.words


async def test_a_certificate_is_stored_shown_and_removed(admin: Visitor, site: Client) -> None:
    await admin.get(SIGNING)
    assert "No certificate is stored." in admin.text
    pair = issued()
    await admin.post(SIGNING, _as_browser(pair.pair))
    assert admin.path == SIGNING and "The certificate is stored." in admin.text
    assert str(pair.certificate.serial_number) in admin.text
    assert "O=Kopi Tiga Sdn. Bhd." in admin.words and "CN=Contoh Test Issuing CA" in admin.words
    assert "notice warn" not in admin.text and "BEGIN" not in _texts_of_fields(admin.text)
    assert (await get_json(site, CERTIFICATE))["data"]["serial"] in admin.text
    await admin.post(f"{SIGNING}/remove")
    assert "The certificate is removed." in admin.text
    assert "No certificate is stored." in admin.text
    await expect(site, 404, "GET", CERTIFICATE)
    await admin.post(f"{SIGNING}/remove")
    assert admin.status == 404 and 'class="notice bad" role="alert"' in admin.text


def _as_browser(fields: dict[str, str]) -> dict[str, str]:
    """Return the entries of textareas as browsers send them, with CRLF."""
    return {name: text.replace("\n", "\r\n") for name, text in fields.items()}


def _texts_of_fields(text: str) -> str:
    values = re.findall(r'<input(?! type="hidden")[^>]*value="([^"]*)"', text)
    return "".join([*values, *re.findall(r"<textarea[^>]*>([^<]*)</textarea>", text)])


@pytest.mark.parametrize(
    "password, reason",
    [
        ("correct horse", None),
        ("wrong horse", "The key cannot be read with this password."),
        ("", "password is required: the key is encrypted."),
    ],
)
async def test_the_password_of_a_private_key_is_checked(
    admin: Visitor, password: str, reason: str | None
) -> None:
    key = key_text(rsa_key(), "correct horse")
    await admin.fill_in(
        SIGNING,
        _as_browser({"certificate": issued().certificate_pem, "key": key, "password": password}),
    )
    assert admin.status == (422 if reason else 200)
    assert (reason or "The certificate is stored.") in admin.text
    assert (f'id="password-wrong">{reason}' in admin.text) == bool(reason)
    assert _texts_of_fields(admin.text) == "" and "horse" not in admin.text


async def test_a_private_key_of_another_certificate_is_refused_and_not_shown(
    admin: Visitor, site: Client
) -> None:
    pair, other = issued(), key_text(rsa_key("other"))
    await admin.get(SIGNING)
    sent = {"certificate": pair.certificate_pem, "key": other, "password": "correct horse"}
    await admin.post(SIGNING, _as_browser(sent))
    assert admin.status == 422 and 'role="alert"' not in admin.text
    assert 'id="key-wrong">key is not the private key of the certificate.' in admin.text
    for line in (*other.splitlines(), *pair.certificate_pem.splitlines()[1:-1], "horse"):
        assert line not in admin.text
    await expect(site, 404, "GET", CERTIFICATE)


@pytest.mark.parametrize("name", ["certificate", "key"])
@pytest.mark.parametrize("text", ["", "invalid", "SECRET" * 5000])
async def test_an_invalid_certificate_or_key_is_shown_at_its_field(
    admin: Visitor, name: str, text: str
) -> None:
    await admin.fill_in(SIGNING, {**issued().pair, name: text})
    assert admin.status == 422 and f'id="{name}-wrong">' in admin.text
    assert _texts_of_fields(admin.text) == "" and "SECRET" not in admin.text


async def test_a_certificate_that_expires_soon_has_a_warning(admin: Visitor) -> None:
    soon = datetime.now(UTC) + timedelta(days=20, hours=1)
    await admin.fill_in(SIGNING, issued(not_after=soon).pair)
    assert 'class="notice warn"' in admin.text
    assert f"The signing certificate expires on {soon:%Y-%m-%d}, in 20 days." in admin.words


async def test_secrets_without_a_secret_key_are_refused_with_an_alert(
    start: StartService, sign_in: SignIn
) -> None:
    site = await start(background=False, **{**LOCAL, "SECRET_KEY": ""})
    admin = await sign_in(site, "admin")
    for path, fields in ((WEBHOOKS, {"url": PLACE}), (SIGNING, issued().pair)):
        await admin.fill_in(path, fields)
        assert admin.status == 409
        assert 'class="notice bad" role="alert">The service cannot store' in admin.text


async def test_the_connection_to_the_portal_is_tested(
    admin: Visitor, site: Client, sandbox: Sandbox
) -> None:
    await admin.get(PORTAL)
    assert sandbox.base in admin.text and "on behalf of" in admin.text
    for number in (1, 2):  # The answer of the first test is not used for the second.
        await admin.post(PORTAL)
        assert "The portal accepts the credentials" in admin.text
        assert await sandbox.count_calls("tin") == number
    await expect(site, 200, "PUT", "/api/companies", json={"registration_number": "199901012345"})
    await admin.post(PORTAL)
    assert "does not know the TIN C20880050010 with BRN 199901012345" in admin.text
    await sandbox.fault("tin", "drop", times=9)
    await admin.post(PORTAL)
    assert 'role="alert"' in admin.text and "The portal is unavailable" in admin.text


async def test_a_refused_login_is_not_shown_as_an_unreachable_portal(
    admin: Visitor, sandbox: Sandbox
) -> None:
    await change_client(sandbox, blocked=True)
    await sandbox.send("POST", "tokens/expire", {})
    await admin.fill_in(PORTAL)
    assert "The service cannot log in to the portal. User blocked." in admin.words
    assert "Ask the operator" in admin.words and "unavailable" not in admin.words


async def test_own_portal_credentials_are_stored_shown_and_removed(
    admin: Visitor, site: Client, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await admin.get(PORTAL)
    assert "on behalf of" in admin.text and "/credentials/remove" not in admin.text
    await admin.post(f"{PORTAL}/credentials", {**OWN_CLIENT, "client_id": " own-client "})
    assert admin.path == PORTAL and "The portal accepts the credentials." in admin.text
    assert "own-client" in admin.words and "as the company itself" in admin.words
    assert OWN_CLIENT["client_secret"] not in admin.text
    await admin.post(PORTAL)
    assert "knows the company's TIN" in admin.words
    assert (await get_json(site, PORTAL_CREDENTIALS))["data"]["client_id"] == "own-client"
    await admin.post(f"{PORTAL}/credentials/remove")
    assert admin.path == PORTAL and "The operator's client is used again." in admin.words
    await admin.post(f"{PORTAL}/credentials/remove")
    assert admin.status == 404 and 'class="notice bad" role="alert"' in admin.text
    assert "stored portal credentials own-client" in await admin.read_words("/settings/activity")


@pytest.mark.parametrize(
    "fields, status, reason",
    [
        (OWN_CLIENT, 400, "The client or its secret is not known. Nothing was changed."),
        ({**OWN_CLIENT, "client_secret": ""}, 422, 'id="client_secret-wrong">client_secret'),
        ({"client_id": "own client", "client_secret": "s"}, 422, 'id="client_id-wrong">client_id'),
    ],
)
async def test_refused_portal_credentials_are_shown_without_the_secret(
    admin: Visitor, site: Client, fields: dict[str, str], status: int, reason: str
) -> None:
    await admin.fill_in(PORTAL, fields, path=f"{PORTAL}/credentials")
    assert admin.status == status and reason in admin.text
    assert f'value="{fields["client_id"]}"' in admin.text
    assert OWN_CLIENT["client_secret"] not in admin.text
    await expect(site, 404, "GET", PORTAL_CREDENTIALS)


async def test_portal_credentials_that_cannot_be_tested_are_not_stored(
    admin: Visitor, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await sandbox.fault("login", "drop")
    await admin.fill_in(PORTAL, OWN_CLIENT, path=f"{PORTAL}/credentials")
    assert admin.status == 503
    assert "The portal cannot be reached, so the credentials could not be tested." in admin.words


async def test_a_refused_own_login_is_shown_on_the_page(
    admin: Visitor, site: Client, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await admin.fill_in(PORTAL, OWN_CLIENT, path=f"{PORTAL}/credentials")
    await add_own_client(sandbox, blocked=True)
    await sandbox.send("POST", "tokens/expire", {})
    await admin.post(PORTAL)
    assert "The company's own portal credentials do not work. User blocked." in admin.words
    assert "The portal has refused these credentials since" in await admin.read_words(PORTAL)


@pytest.mark.parametrize("path", SECRETS)
async def test_a_secret_is_changed_only_after_the_password_was_entered(
    admin: Visitor, site: Client, owner: asyncpg.Connection, sandbox: Sandbox, path: str
) -> None:
    await create_endpoint(site, PLACE)
    await add_own_client(sandbox)
    await admin.get(SECRETS[path])
    assert f'action="{path}"' in admin.text or path.endswith(("/remove", "/enable"))
    await owner.execute(
        "update user_sessions set authenticated_at = authenticated_at - interval '11 minutes'"
    )
    before = await owner.fetchval("select count(*) from audit_log")
    fields = {"url": PLACE, "name": "shop", **issued().pair, **OWN_CLIENT}
    await admin.post(path, fields)
    assert admin.path == "/confirm" and f'name="next" value="{SECRETS[path]}"' in admin.text
    assert await owner.fetchval("select count(*) from audit_log") == before
    await admin.get(SECRETS[path])
    assert f'action="{path}"' not in admin.text
    assert f'href="/confirm?next={SECRETS[path]}"' in admin.text


async def test_a_key_over_the_limit_is_refused_with_the_reason(
    admin: Visitor, company: Company, config: Config
) -> None:
    for _ in range(MOST_KEYS - 1):
        await run_command(config, add_key, company.id)
    await admin.fill_in("/settings/keys", {"name": "till"})
    assert admin.status == 409 and TOO_MANY_KEYS in admin.words


@pytest.mark.parametrize(
    "expires, words",
    [
        ("2027-02-30", "The expiry must be a date."),
        ("2027-02-01T10:00+00:00", "The expiry must be a date."),
        ("2026-01-01", "The expiry must be in the future."),
    ],
)
async def test_a_refused_expiry_of_a_key_is_shown_at_its_field(
    admin: Visitor, expires: str, words: str
) -> None:
    await admin.fill_in("/settings/keys", {"name": "till", "expires": expires})
    assert admin.status == 422 and words in admin.words
    assert 'aria-describedby="expires-wrong"' in admin.text
    assert 'value="till"' in admin.text and f'value="{expires}"' in admin.text


@pytest.mark.parametrize("page", [WEBHOOKS, SIGNING])
async def test_a_person_who_is_removed_meanwhile_changes_no_settings(
    admin: Visitor, owner: asyncpg.Connection, page: str
) -> None:
    new = issued()
    fields = {"url": PLACE, "certificate": new.certificate_pem, "key": new.key_pem}
    await admin.get(page)
    async with owner.transaction():
        await owner.execute("delete from company_members")
        change = asyncio.create_task(admin.post(page, fields))
        await wait_for_lock(owner)
    await change
    assert admin.status == 403
    for table in ("webhook_endpoints", "signing_certificates"):
        assert await owner.fetchval(f"select count(*) from {table}") == 0


async def test_a_person_who_is_removed_during_the_login_stores_no_credentials(
    admin: Visitor, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await admin.get(PORTAL)
    await sandbox.fault("login", "slow", seconds=1)
    change = asyncio.create_task(admin.post(f"{PORTAL}/credentials", OWN_CLIENT))
    await until(sandbox.waiting, lambda faults: not faults)
    await owner.execute("delete from company_members")
    await change
    assert admin.status == 403
    assert await owner.fetchval("select count(*) from portal_credentials") == 0
