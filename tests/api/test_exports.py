"""Exports of one invoice and of all invoices of a company. Spec: Invoice export object."""

import json
from typing import Any

import aiohttp
import asyncpg
import pytest

from service import schema
from tests.api.test_specification import INVOICE_EXPORT
from tests.api_invoices import create_invoice
from tests.api_reads import fail_midway, get_invoice, wait_until_idle
from tests.api_requests import expect
from tests.conftest import Client
from tests.harness.bodies import AS_BUYER, AS_SUPPLIER, buyer, invoice, line

SPECIFIED = INVOICE_EXPORT.keys()
OPTIONAL = schema.ALL["common"]["$defs"]["document_members"]["properties"].keys()


async def get_export(api: Client, invoice_id: int) -> dict[str, Any]:
    return await expect(api, 200, "GET", f"/api/invoices/{invoice_id}/export")


async def get_export_of_all(api: Client) -> list[dict[str, Any]]:
    return await expect(api, 200, "GET", "/api/invoices/export-all")


async def set_setting(owner: asyncpg.Connection, **changes: Any) -> None:
    await owner.execute("update companies set setting = setting || $1::jsonb", json.dumps(changes))


async def insert_copies(
    owner: asyncpg.Connection, invoice_id: int, count: int, **members: Any
) -> None:
    """Insert rows like an invoice until there are `count`, faster than by requests."""
    await owner.execute(
        """
        insert into documents (company_id, kind, code, code_year, type, issue_date, buyer_text,
               buyer, line_items, net_amount, excluding_tax, including_tax, payable_amount, bytes,
               optional_members)
        select company_id, kind, code + n, code_year, type, issue_date, buyer_text,
               buyer::jsonb || $3::jsonb,
               line_items, net_amount, excluding_tax, including_tax, payable_amount,
               bytes + octet_length($3::text), optional_members
          from documents, generate_series(1, $2 - 1) n
         where id = $1
         order by n
        """,
        invoice_id,
        count,
        json.dumps(members),
    )


@pytest.mark.own_service
async def test_export_has_the_specified_members(api: Client) -> None:
    charge = {"charges": [{"amount": 1.5, "reason": "wrapping"}]}
    sent: dict[str, Any] = invoice(
        code=7,
        issueDateTime="2026-01-31T09:30:00+08:00",
        invoiceLevelAllowanceCharge=charge,
        prepayment={"amount": 50, "reference": "DEP-771"},
        payableRoundingAmount=0.04,
    )
    invoice_id = await create_invoice(api, **sent)
    export = await get_export(api, invoice_id)
    assert export == {
        **dict.fromkeys(OPTIONAL),
        "invoiceCodeWithPrefixAndDigits": "INV-00007",
        "invoiceCode": "7",
        "buyer": sent["buyer"],
        "supplier": AS_SUPPLIER,
        "lineItems": sent["lineItems"],
        "invoiceDateTime": "2026-01-31T01:30:00.000+00:00",
        "invoiceLevelAllowanceCharge": charge,
        "consolidatedInvoiceCode": None,
        "createdAt": (await get_invoice(api, invoice_id))["created_at"],
        "prepayment": sent["prepayment"],
        "payableRoundingAmount": 0.04,
    }


@pytest.mark.own_service
async def test_company_is_the_buyer_in_a_self_billed_export(api: Client) -> None:
    seller = buyer(name="Foshan Timber Export Co. Ltd.")
    for code, invoice_type in enumerate(
        ("SELF_BILLED_INVOICE", "PENDING_FINALIZE_SELF_BILLED_INVOICE"), start=7
    ):
        export = await get_export(
            api,
            await create_invoice(api, code=code, type=invoice_type, buyer=None, supplier=seller),
        )
        assert (export["buyer"], export["supplier"]) == (AS_BUYER, seller)
        assert export["invoiceCodeWithPrefixAndDigits"] == f"SB-0000{code}"


async def test_missing_values_are_exported_as_null(api: Client) -> None:
    export = await get_export(
        api, await create_invoice(api, type="PENDING_FINALIZE_INVOICE", buyer=None)
    )
    assert export.keys() == SPECIFIED | OPTIONAL
    assert export["buyer"] is None and export["invoiceLevelAllowanceCharge"] is None


#: (PREFIX_DIGIT_COUNT, code, full code)
FULL_CODES = (
    (0, 7, "INV-7"),
    (1, 7, "INV-7"),
    (5, 7, "INV-00007"),
    (5, 99999, "INV-99999"),
    (5, 100000, "INV-100000"),
    (12, 7, "INV-000000000007"),
    (12, 999999999999, "INV-999999999999"),
    (0, 999999999999, "INV-999999999999"),
)


async def test_full_code_is_padded_and_never_truncated(
    api: Client, owner: asyncpg.Connection
) -> None:
    for year, (digits, code, full) in enumerate(FULL_CODES, start=2001):
        await set_setting(owner, PREFIX_DIGIT_COUNT=digits)
        export = await get_export(
            api, await create_invoice(api, code=code, issueDateTime=f"{year}-06-01T00:00:00Z")
        )
        assert export["invoiceCodeWithPrefixAndDigits"] == full
        assert export["invoiceCode"] == str(code)


async def test_export_is_a_file_named_by_the_full_code(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(api, code=7)
    for prefix, name in (
        ("INV-", "invoice-INV-00007.json"),
        ("", "invoice-00007.json"),
        ('a"/../ü\r\nX: y', "invoice-a__..____X__y00007.json"),
    ):
        await set_setting(owner, INVOICE_PREFIX=prefix)
        async with api.get(f"/api/invoices/{invoice_id}/export") as response:
            assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
            assert response.content_type == "application/json" and "X" not in response.headers
            assert (await response.json())["invoiceCodeWithPrefixAndDigits"] == f"{prefix}00007"


async def test_export_of_all_invoices_is_a_file(api: Client) -> None:
    async with api.get("/api/invoices/export-all") as response:
        assert response.headers["Content-Disposition"] == 'attachment; filename="invoices.json"'
        assert response.content_type == "application/json"


async def test_export_of_all_invoices_equals_single_exports(api: Client) -> None:
    invoice_id = await create_invoice(api)
    assert await get_export_of_all(api) == [await get_export(api, invoice_id)]


async def test_export_of_several_batches_is_chunked_and_newest_first(
    api: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(api, code=1), 1203)
    async with api.get("/api/invoices/export-all") as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
        exports = await response.json()
    assert [export["invoiceCode"] for export in exports] == [
        str(code) for code in range(1203, 0, -1)
    ]
    assert all(export.keys() == SPECIFIED | OPTIONAL for export in exports)


@pytest.mark.parametrize("count", [500, 501])
async def test_export_with_a_full_last_batch_is_complete(
    api: Client, owner: asyncpg.Connection, count: int
) -> None:
    await insert_copies(owner, await create_invoice(api), count)
    assert len(await get_export_of_all(api)) == count


async def test_deleted_and_other_companies_invoices_are_not_exported(
    api: Client, stranger: Client
) -> None:
    await create_invoice(stranger, code=1)
    gone = await create_invoice(api, code=2)
    await create_invoice(api, code=3)
    await expect(api, 200, "DELETE", f"/api/invoices/{gone}")
    assert [export["invoiceCode"] for export in await get_export_of_all(api)] == ["3"]


async def test_head_request_of_an_export(api: Client) -> None:
    await create_invoice(api)
    async with api.head("/api/invoices/export-all") as response:
        assert response.status == 200 and await response.read() == b""
        assert "attachment" in response.headers["Content-Disposition"]


async def test_export_that_fails_midway_is_visibly_incomplete(
    api: Client, owner: asyncpg.Connection
) -> None:
    """The client has read part of the first batch when the second one fails."""
    await insert_copies(owner, await create_invoice(api), 1203, remark="x" * 40_000)
    async with api.get("/api/invoices/export-all") as response:
        await fail_midway(response, owner, "invoice_exports")


async def test_export_whose_first_batch_fails_is_visibly_incomplete(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter view invoice_exports rename to elsewhere")
    with pytest.raises(aiohttp.ClientError):
        async with api.get("/api/invoices/export-all") as response:
            await response.read()


async def test_slow_export_client_holds_no_database_connection(
    api: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(api), 1203, remark="x" * 40_000)
    async with api.get("/api/invoices/export-all") as response:
        await response.content.readexactly(10_000)
        await wait_until_idle(owner)
        assert (await response.read()).endswith(b"}]")


async def test_invoices_can_be_created_and_deleted_during_an_export(
    api: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(
        owner, await create_invoice(api, lineItems=[line()]), 1203, remark="x" * 40_000
    )
    newest: Any = await owner.fetchval("select max(id) from documents")
    async with api.get("/api/invoices/export-all") as response:
        head = await response.content.readexactly(10_000)
        await create_invoice(api, issueDateTime="2020-01-31T09:30:00Z")
        await expect(api, 200, "DELETE", f"/api/invoices/{newest - 1200}")
        exports = json.loads(head + await response.read())
    assert len(exports) == 1202
