"""The page with the audit log: who did what, with old and new values in words."""

import asyncpg

from service.dashboard.activity import LABELS
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import cancel_latest, create_record, expect, request_json
from tests.conftest import Client
from tests.harness.bodies import buyer
from tests.harness.visitors import Visitor

#: Columns of companies that the audit log leaves out.
UNSHOWN = {"id", "created_at", "updated_at", "tin", "setting"}


async def test_old_and_new_values_of_settings_are_shown_in_words(
    admin: Visitor, site: Client
) -> None:
    for city in ("Ipoh", "<b>Klang</b>"):
        await expect(site, 200, "PUT", "/api/companies", json={"city": city})
    _, answer = await request_json(site, "GET", "/api/companies")
    setting = {**answer["data"]["setting"], "INVOICE_PREFIX": "X-", "AUTO_SUBMIT_INVOICE": True}
    taxes = [{"tax_type": "02", "tax_rate": 8}]
    body = {"setting": setting, "default_tax_types_and_rates": taxes}
    await expect(site, 200, "PUT", "/api/companies", json=body)
    text = await admin.read_words("/settings/activity")
    assert "City: from Ipoh to <b>Klang</b>" in text and "<b>Klang" not in admin.text
    assert "Prefix of Invoices: from INV- to X-" in text
    assert "Automatic submission: from no to yes" in text
    assert "Default taxes: Service Tax 8%" in text
    assert "Role: Administrator" in text


async def test_changes_of_a_webhook_are_shown_without_its_secret(
    admin: Visitor, site: Client
) -> None:
    body = {"url": "https://hooks.example.com/in"}
    _, made = await request_json(site, "POST", "/api/webhooks", json=body)
    change = {"types": ["invoice.valid"], "enabled": False}
    path = f"/api/webhooks/{made['data']['id']}"
    await expect(site, 200, "PUT", path, json=change)
    await expect(site, 200, "POST", f"{path}/rotate-secret", json={})
    text = await admin.read_words("/settings/activity")
    assert "URL: https://hooks.example.com/in" in text
    assert "Description" not in text and "None" not in text
    assert "Event types: from all to invoice.valid" in text and "Enabled: from yes to no" in text
    assert made["data"]["secret"].removeprefix("whsec_") not in admin.text


async def test_the_page_of_a_document_shows_who_cancelled_it_and_why(
    admin: Visitor, site: Client
) -> None:
    invoice_id = await create_valid_invoice(site, code=4711)
    assert (await cancel_latest(site, invoice_id, reason="Wrong buyer"))[0] == 200
    for path in (f"/invoices/{invoice_id}", "/settings/activity"):
        text = await admin.read_words(path)
        assert "cancelled invoice 4711 Reason: Wrong buyer" in text


async def test_entries_link_to_the_pages_of_documents_that_exist(
    admin: Visitor, site: Client
) -> None:
    kept = await create_valid_invoice(site, code=4711)
    deleted = await create_invoice(site, code=4712)
    await expect(site, 200, "DELETE", f"/api/invoices/{deleted}")
    text = await admin.read_words("/settings/activity")
    assert "submitted invoice 4711" in text and "deleted invoice 4712" in text
    assert f'href="/invoices/{kept}"' in admin.text
    assert f'href="/invoices/{deleted}"' not in admin.text


async def test_every_member_of_an_entry_has_a_label(owner: asyncpg.Connection) -> None:
    labels = LABELS.keys()
    columns = await owner.fetch(
        "select attname from pg_attribute"
        " where attrelid = 'companies'::regclass and attnum > 0 and not attisdropped"
    )
    assert {row["attname"] for row in columns} - UNSHOWN - labels == set()
    settings = await owner.fetch(
        "select 'setting.' || jsonb_object_keys(setting) as name from companies"
    )
    webhook = await owner.fetch(
        "select jsonb_object_keys(webhook_values(null::webhook_endpoints)) as name"
    )
    assert {row["name"] for row in [*settings, *webhook]} - labels == set()


async def test_creates_changes_and_decisions_are_shown_with_person_and_address(
    admin: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, code=4711, type="PENDING_FINALIZE_INVOICE", buyer=None)
    asked = {"invoiceCode": "4711", **buyer()}
    request_id = (await create_record(site, "/api/einvoice-requests", **asked))["id"]
    for choice in ("reject", "reopen", "approve"):
        await admin.fill_in("/requests", path=f"/requests/{request_id}/{choice}")
    for path in (f"/invoices/{invoice_id}", "/settings/activity"):
        text = await admin.read_words(path)
        assert "created invoice 4711 127.0.0.1" in text
        assert "admin changed invoice 4711 127.0.0.1" in text
    for done in ("rejected", "made", "approved"):
        assert f"admin {done} e-invoice request {request_id}" in text
