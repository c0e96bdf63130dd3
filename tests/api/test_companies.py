"""The company of a key: its record, its update and its readiness. Spec: Company."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import wait_for_status
from tests.api_requests import expect, list_rules, request_json, submit
from tests.conftest import Client, Company, Sandbox, StartService
from tests.harness.bodies import AS_BUYER, AS_SUPPLIER, invoice

FIELDS = (
    "id name tin_code registration_number registration_type sst_registration_number "
    "tourism_tax_registration_number business_activity_description msic_code country "
    "state zip_code city address phone email bank_account exporter_certified_number "
    "setting created_at updated_at default_tax_types_and_rates is_company_ready "
    "readiness tin_verified tin_verified_at as_buyer as_supplier"
)
SETTING = {
    "INVOICE_PREFIX": "INV-",
    "SELF_BILLED_INVOICE_PREFIX": "SB-",
    "CONSOLIDATE_INVOICE_PREFIX": "CI-",
    "CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX": "CSB-",
    "CREDIT_NOTE_PREFIX": "CN-",
    "DEBIT_NOTE_PREFIX": "DN-",
    "REFUND_NOTE_PREFIX": "RN-",
    "PREFIX_DIGIT_COUNT": 5,
    "AUTO_SUBMIT_INVOICE": False,
}
#: The body of an update with every member.
COMPANY = {
    "name": "Kopi Empat Sdn. Bhd.",
    "tin_code": "C20880050020",
    "registration_number": "202001234568",
    "registration_type": "BRN",
    "sst_registration_number": "W10-1808-32000059",
    "tourism_tax_registration_number": "123-4567-89012345",
    "business_activity_description": "Coffee shops",
    "msic_code": "56103",
    "country": "MYS",
    "state": "10",
    "zip_code": "40150",
    "city": "Shah Alam",
    "address": "5 Jalan Dahlia",
    "phone": "+60355123456",
    "email": "hello@kopiempat.example",
    "setting": SETTING,
}


async def company_record(api: Client) -> dict[str, Any]:
    status, body = await request_json(api, "GET", "/api/companies")
    assert (status, list(body)) == (200, ["data"])
    return body["data"]


async def put(api: Client, **changes: Any) -> tuple[int, Any]:
    return await request_json(api, "PUT", "/api/companies", json=changes)


async def update(api: Client, **changes: Any) -> dict[str, Any]:
    status, body = await put(api, **changes)
    assert (status, list(body)) == (200, ["data"]), body
    return body["data"]


async def get_violations(api: Client, **changes: Any) -> list[tuple[str, str]]:
    """Return the paths and rules of a rejected update."""
    status, body = await put(api, **changes)
    assert (status, set(body)) == (422, {"message", "code", "errors"}), body
    assert body["code"] == "validation_failed"
    return list_rules(body)


def without(setting: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in setting.items() if key != name}


@pytest.mark.own_service
async def test_company_record_has_every_specified_field(api: Client, company: Company) -> None:
    found = await company_record(api)
    assert list(found) == FIELDS.split()
    assert found["id"] == company.id and found["setting"] == SETTING
    assert found["as_buyer"] == AS_BUYER
    assert found["as_supplier"] == AS_SUPPLIER
    assert found["is_company_ready"] is True and found["default_tax_types_and_rates"] == []
    assert found["bank_account"] is None and found["created_at"].endswith("+00:00")


async def test_default_taxes_are_replaced_as_a_whole(api: Client) -> None:
    name = "default_tax_types_and_rates"
    taxes = [{"tax_type": "02", "tax_rate": 8}, {"tax_type": "01", "tax_rate": 5.5}]
    filled = [{**tax, "factor_type": "percentage"} for tax in taxes]
    assert (await update(api, **{name: taxes}))[name] == filled
    assert (await update(api, city="Klang"))[name] == filled
    unknown = {name: [taxes[0], {"tax_type": "XX", "tax_rate": 1}]}
    assert await get_violations(api, **unknown) == [(f"/{name}/1/tax_type", "code")]
    assert (await update(api, **{name: []}))[name] == []


async def test_update_changes_only_the_sent_fields(api: Client) -> None:
    before = await company_record(api)
    after = await update(api, phone="+60387654321", city="Petaling Jaya", state="10")
    expected = {**before, "phone": "+60387654321", "city": "Petaling Jaya", "state": "10"}
    for derived in ("as_buyer", "as_supplier", "updated_at"):
        assert after[derived] != before[derived]
        expected[derived] = after[derived]
    assert after == expected == await company_record(api)
    assert await update(api) | {"updated_at": ""} == after | {"updated_at": ""}


async def test_update_writes_every_field_of_the_body(api: Client) -> None:
    changed = {"INVOICE_PREFIX": "T/", "PREFIX_DIGIT_COUNT": 0, "AUTO_SUBMIT_INVOICE": True}
    body = {**COMPANY, "setting": {**SETTING, **changed}}
    after = await update(api, **body)
    assert {name: after[name] for name in body} == body
    assert after["as_supplier"]["tourismTaxRegistrationNumber"] == "123-4567-89012345"
    assert after["as_buyer"]["sstRegistrationNumber"] == "W10-1808-32000059"


@pytest.mark.parametrize("name", ["sst_registration_number", "tourism_tax_registration_number"])
@pytest.mark.parametrize("none", [None, "", "  "])
async def test_tax_registration_number_can_be_removed(
    api: Client, name: str, none: str | None
) -> None:
    assert (await update(api, **{name: "W10-1808"}))[name] == "W10-1808"
    after = await update(api, **{name: none})
    members = {
        "sst_registration_number": "sstRegistrationNumber",
        "tourism_tax_registration_number": "tourismTaxRegistrationNumber",
    }
    assert after[name] is None and after["as_supplier"][members[name]] == "NA"


async def test_blank_registration_number_counts_as_missing(api: Client) -> None:
    after = await update(api, registration_number="")
    assert after["as_buyer"]["registrationNumber"] == "NA" and after["is_company_ready"] is False


@pytest.mark.parametrize(
    "changes, places",
    [
        ({"setting": {}}, [(f"/setting/{name}", "required") for name in SETTING]),
        ({"tin_code": ""}, [("/tin_code", "pattern")]),
        ({"country": "MY"}, [("/country", "code")]),
        ({"state": "Selangor"}, [("/state", "code")]),
        ({"is_company_ready": True}, [("/is_company_ready", "unknown")]),
    ],
)
async def test_invalid_update_is_rejected_and_changes_nothing(
    api: Client, changes: dict[str, Any], places: list[tuple[str, str]]
) -> None:
    before = await company_record(api)
    assert await get_violations(api, **changes, email="other@kopitiga.example") == places
    assert await company_record(api) == before


@pytest.mark.parametrize(
    "prefix", ["\n", "A\r\nX: 1", "\t", "A\x1f", "\x7f", "\x85", "\x9f", "\u2028", "A\u2029"]
)
@pytest.mark.parametrize("name", [name for name in SETTING if name.endswith("_PREFIX")])
async def test_prefix_with_a_control_character_is_rejected(
    api: Client, name: str, prefix: str
) -> None:
    found = await get_violations(api, setting={**SETTING, name: prefix})
    assert found == [(f"/setting/{name}", "pattern")]


async def test_stored_prefix_with_a_control_character_is_kept(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(
        """update companies set setting = setting || '{"INVOICE_PREFIX": "A\\n"}'"""
    )
    assert (await update(api, city="Ipoh"))["setting"]["INVOICE_PREFIX"] == "A\n"
    found = await update(api, setting={**SETTING, "INVOICE_PREFIX": " Ä–\u00a0"})
    assert found["setting"]["INVOICE_PREFIX"] == " Ä–\u00a0"


async def test_state_is_validated_with_its_country(api: Client) -> None:
    assert (await update(api, country="SGP", state="Jurong"))["state"] == "Jurong"
    assert (await update(api, state="Tuas"))["state"] == "Tuas"
    assert await get_violations(api, country="MYS") == [("/state", "code")]
    assert (await update(api, country="MYS", state="07"))["is_company_ready"] is True


async def test_digit_count_with_a_decimal_point_is_accepted(api: Client) -> None:
    prefixes = {name: "" for name in SETTING if name.endswith("_PREFIX")}
    setting = {**SETTING, **prefixes, "INVOICE_PREFIX": "Q", "PREFIX_DIGIT_COUNT": 3.0}
    body = json.dumps({"setting": setting})
    headers = {"Content-Type": "application/json"}
    await expect(api, 200, "PUT", "/api/companies", data=body.encode(), headers=headers)
    invoice_id = await create_invoice(api, code=7)
    status, export = await request_json(api, "GET", f"/api/invoices/{invoice_id}/export")
    assert (status, export["invoiceCodeWithPrefixAndDigits"]) == (200, "Q007")


async def test_auto_submit_setting_submits_ready_invoices(api: Client) -> None:
    found = await request_json(api, "POST", "/api/invoices", json=invoice(isReady=True))
    assert "submitted" not in found[1]["message"]
    await update(api, setting={**SETTING, "AUTO_SUBMIT_INVOICE": True})
    invoice_id = await create_invoice(api, isReady=True)
    await wait_for_status(api, invoice_id, "Valid")


# Readiness


@pytest.mark.parametrize(
    "changes, is_ready",
    [
        ({"tin_code": "X2088005001"}, False),
        ({"tin_code": "IG40125678090"}, True),
        ({"registration_type": "NRIC"}, True),
        ({"registration_type": "NRIC", "registration_number": "880214-14-5566"}, True),
        ({"registration_type": "NRIC", "registration_number": "12"}, False),
        ({"registration_type": "PASSPORT", "registration_number": "A" * 13}, False),
        ({"phone": "123"}, False),
        ({"phone": "(03) 1234-5678"}, True),
        ({"phone": "call us"}, False),
        ({"zip_code": "504800"}, False),
        ({"zip_code": ""}, True),
        ({"email": ""}, True),
        ({"email": "nobody"}, False),
        ({"country": "SGP", "state": ""}, True),
        ({"state": "17"}, False),
    ],
)
async def test_company_is_ready_if_its_needed_values_are_well_formed(
    start: StartService, changes: dict[str, Any], is_ready: bool
) -> None:
    api = await start(TIN_VERIFICATION="automatic")
    assert (await update(api, **changes))["is_company_ready"] is is_ready


# The TIN


async def test_tin_change_is_rejected_while_a_document_is_under_validation(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    status, body = await put(api, tin_code="C20880050990")
    assert (status, set(body)) == (409, {"message", "code"}) and "TIN" in body["message"]
    assert body["code"] == "tin_in_use"
    found = await update(api, tin_code="C20880050010", phone="+60387654321")
    assert found["phone"] == "+60387654321"
    await sandbox.settings(stuck=False)
    await wait_for_status(api, invoice_id, "Valid")
    assert (await update(api, tin_code="C20880050990"))["tin_code"] == "C20880050990"


async def test_tin_change_and_submission_exclude_each_other(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """The company never has another TIN than a document under validation."""
    await sandbox.settings(stuck=True)
    for turn in range(5):
        invoice_id, tin = await create_invoice(api), f"C2088005{turn}990"
        (sent, _), (put_status, _) = await asyncio.gather(
            submit(api, invoice_id), put(api, tin_code=tin)
        )
        assert put_status in (200, 409) and sent in (200, 400)
        of_company = await owner.fetchval("select tin_code from companies")
        of_documents = await owner.fetch(
            """
            select distinct s.tin
              from submissions s join submitted_documents d on d.submission_id = s.id
             where d.status in ('Submitting', 'Submitted')
            """
        )
        assert {row["tin"] for row in of_documents} <= {of_company}
        # Unlock the TIN for the next turn.
        await owner.execute("update submitted_documents set status = 'Cancelled'")


async def test_concurrent_updates_are_all_applied(api: Client) -> None:
    changes = [
        {"phone": "+60387654321"},
        {"city": "Ipoh"},
        {"zip_code": "30000"},
        {"email": "x@y.example"},
    ]
    assert {
        status for status, _ in await asyncio.gather(*[put(api, **change) for change in changes])
    } == {200}
    found = await company_record(api)
    for change in changes:
        assert change.items() <= found.items()
