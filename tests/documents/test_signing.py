"""Signing submissions: the source of the certificate, refusals, the API and warnings."""

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from service import json_codec
from service.config import ConfigError
from service.documents.signing.certificate import ISSUER_FORMS
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_documents, wait_for_status
from tests.api_requests import CERTIFICATE, expect, not_found, request_json, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company
from tests.documents.test_signature import parse_as_written, split_signature, verify
from tests.harness.bodies import invoice
from tests.harness.certificates import TIN, Issued, issued, key_text, rsa_key
from tests.harness.environments import GENEROUS

SIGNED = {"PORTAL_DOCUMENT_VERSION": "1.1", "SECRET_KEY": GENEROUS["SECRET_KEY"]}
OTHER_KEY = base64.b64encode(b"z" * 32).decode()
DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
async def api(start: StartService) -> Client:
    """A client of a service that signs, for a company without a certificate."""
    return await start(**SIGNED)


async def store_certificate(
    api: Client, made: Issued | None = None, **members: Any
) -> dict[str, Any]:
    body = await expect(api, 200, "PUT", CERTIFICATE, json={**(made or issued()).pair, **members})
    return body["data"]


async def get_sent_document(owner: asyncpg.Connection) -> tuple[dict[str, Any], Any]:
    """Return the last document that was sent, without its signature, and the signature block."""
    content: Any = await owner.fetchval(
        "select content from submitted_contents order by submitted_document_id desc"
    )
    return split_signature(parse_as_written(content))


def signed_by(block: Any) -> bytes:
    return base64.b64decode(block["KeyInfo"][0]["X509Data"][0]["X509Certificate"][0]["_"])


async def submit_refused(api: Client) -> list[dict[str, Any]]:
    """Return the errors of a refused submit. The invoice stays a draft that can be submitted."""
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert status == 400 and body["message"] == "Failed to submit, please try again"
    await wait_for_status(api, invoice_id, "Draft")
    return body["errors"]


# Signed submissions


async def test_a_signed_invoice_becomes_valid(api: Client, owner: asyncpg.Connection) -> None:
    made = issued()
    await store_certificate(api, made)
    invoice_id = await create_valid_invoice(api)
    bare, block = await get_sent_document(owner)
    verify(bare, block)
    assert signed_by(block) == made.der
    assert bare["Invoice"][0]["InvoiceTypeCode"][0]["listVersionID"] == "1.1"
    _, (found,) = await request_json(api, "GET", f"/api/invoices/{invoice_id}/submitted-documents")
    assert (found["status"], found["document_version"]) == ("Valid", "1.1")


async def test_the_signing_time_is_that_of_the_submission(
    api: Client, owner: asyncpg.Connection
) -> None:
    await store_certificate(api)
    clock = "select date_trunc('second', clock_timestamp())"
    before = (await owner.fetch(clock))[0][0]
    await create_valid_invoice(api)
    _, block = await get_sent_document(owner)
    (properties,) = block["Object"][0]["QualifyingProperties"][0]["SignedProperties"][0][
        "SignedSignatureProperties"
    ]
    at = json_codec.parse_instant(properties["SigningTime"][0]["_"])
    assert before <= at <= (await owner.fetch("select clock_timestamp()"))[0][0]


async def test_concurrent_submissions_are_all_signed(
    api: Client, owner: asyncpg.Connection
) -> None:
    await store_certificate(api)
    ids = [await create_invoice(api) for _ in range(8)]
    assert {
        status
        for status, _ in await asyncio.gather(*[submit(api, invoice_id) for invoice_id in ids])
    } == {200}
    for row in await owner.fetch("select content from submitted_contents"):
        verify(*split_signature(parse_as_written(row["content"])))


# The source of the certificate


@pytest.fixture
def files(tmp_path: Path) -> tuple[Issued, dict[str, str]]:
    """A certificate of the sandbox's intermediary, and the variables that configure it."""
    made = issued("C25845632020", "201901012345", key=rsa_key("intermediary"))
    for name, text in (("own.pem", made.certificate_pem), ("own.key", key_text(made.key, "hush"))):
        (tmp_path / name).write_text(text)
    named = {
        "SIGNING_CERTIFICATE_FILE": str(tmp_path / "own.pem"),
        "SIGNING_KEY_FILE": str(tmp_path / "own.key"),
    }
    return made, {**named, "SIGNING_KEY_PASSWORD": "hush"}


async def test_the_configured_certificate_signs_for_a_company_without_one(
    start: StartService, owner: asyncpg.Connection, files: tuple[Issued, dict[str, str]]
) -> None:
    made, variables = files
    api = await start(**SIGNED, **variables)
    await create_valid_invoice(api)
    bare, block = await get_sent_document(owner)
    verify(bare, block)
    assert signed_by(block) == made.der
    await expect(api, 404, "GET", CERTIFICATE)  # it is not the company's
    await store_certificate(api)
    await create_valid_invoice(api)
    assert signed_by((await get_sent_document(owner))[1]) != made.der
    await expect(api, 200, "DELETE", CERTIFICATE)
    await create_valid_invoice(api)
    assert signed_by((await get_sent_document(owner))[1]) == made.der


@pytest.mark.parametrize("form", ISSUER_FORMS)
async def test_the_issuer_name_is_written_in_the_configured_form(
    api: Client,
    start: StartService,
    owner: asyncpg.Connection,
    files: tuple[Issued, dict[str, str]],
    form: Any,
) -> None:
    forms = {
        "rfc2253": "CN=Contoh Test Issuing CA, O=Contoh Amanah Sdn Bhd, C=MY",
        "encoded": "C=MY, O=Contoh Amanah Sdn Bhd, CN=Contoh Test Issuing CA",
        "rfc2253_blanks": "CN = Contoh Test Issuing CA, O = Contoh Amanah Sdn Bhd, C = MY",
    }
    configured = await start(**SIGNED, **files[1], SIGNING_ISSUER_FORM=form)
    for client in (configured, api):  # the sandbox accepts the first form only
        await create_submitted_invoice(client)
        _, block = await get_sent_document(owner)
        assert (
            block["KeyInfo"][0]["X509Data"][0]["X509IssuerSerial"][0]["X509IssuerName"][0]["_"]
            == forms[form]
        )
        assert (await store_certificate(api, issuer_form=form))["issuer"] == forms[form]


@pytest.mark.parametrize(
    "change, wording",
    [
        (
            {"SIGNING_KEY_PASSWORD": "loud"},
            "SIGNING_KEY_PASSWORD: The key cannot be read with this password.",
        ),
        (
            {"SIGNING_KEY_PASSWORD": ""},
            "SIGNING_KEY_PASSWORD: password is required: the key is encrypted.",
        ),
        (
            {"SIGNING_KEY_FILE": "/nowhere/own.key"},
            "SIGNING_KEY_FILE cannot be read: No such file or directory",
        ),
        (
            {"SIGNING_CERTIFICATE_FILE": "/"},
            "SIGNING_CERTIFICATE_FILE cannot be read: Is a directory",
        ),
    ],
)
async def test_unusable_signing_files_are_named_at_the_start(
    start: StartService, files: tuple[Issued, dict[str, str]], change: dict[str, Any], wording: str
) -> None:
    with pytest.raises(ConfigError) as why:
        await start(**{**SIGNED, **files[1], **change})
    assert str(why.value) == wording


# Refusals


def stop(code: str, message: str) -> list[dict[str, Any]]:
    return [{"code": code, "path": "/company/signing-certificate", "message": message}]


async def test_a_submit_without_a_certificate_is_refused(api: Client, sandbox: Sandbox) -> None:
    wording = (
        "There is no certificate to sign the document with: "
        "the company has none, and none is configured."
    )
    assert await submit_refused(api) == stop("DS301", wording)
    path = "/api/invoices"
    status, body = await request_json(api, "POST", path, json=invoice(submitImmediately=True))
    assert (status, body["data"]["errors"]) == (201, stop("DS301", wording))
    assert await sandbox.ledger() == []
    invoice_id = await create_invoice(api)
    await submit(api, invoice_id)
    await store_certificate(api)
    assert (await submit(api, invoice_id))[0] == 200


@pytest.mark.parametrize(
    "begin, end, wording",
    [
        (NOW - 9 * DAY, NOW - DAY, f"The signing certificate expired on {NOW - DAY:%Y-%m-%d}."),
        (
            NOW + 2 * DAY,
            NOW + 9 * DAY,
            f"The signing certificate is not valid before {NOW + 2 * DAY:%Y-%m-%d}.",
        ),
    ],
)
async def test_a_submit_outside_the_validity_of_the_certificate_is_refused(
    api: Client,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
    begin: datetime,
    end: datetime,
    wording: str,
) -> None:
    await store_certificate(api)
    stored = issued(not_before=begin, not_after=end)
    await owner.execute("update signing_certificates set certificate = $1", stored.der)
    assert await submit_refused(api) == stop("DS304", wording) and await sandbox.ledger() == []
    assert (await request_json(api, "GET", CERTIFICATE))[1]["data"]["warning"] == wording


UNREADABLE = (
    "The company's signing key cannot be decrypted with the SECRET_KEY of the service; "
    "set the certificate again."
)


async def test_a_submit_with_an_undecryptable_key_is_refused(
    start: StartService,
    api: Client,
    company: Company,
    sandbox: Sandbox,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await store_certificate(api)
    other = await start(**{**SIGNED, "SECRET_KEY": OTHER_KEY})
    assert await submit_refused(other) == stop("SigningKeyUnreadable", UNREADABLE)
    none = await start(**{**SIGNED, "SECRET_KEY": ""})
    assert await submit_refused(none) == stop("SigningKeyUnreadable", UNREADABLE)
    assert await sandbox.ledger() == []
    assert (
        f"cannot decrypt the key of company {company.id}: It was encrypted with the secret key "
        in caplog.text
    )


async def test_an_encrypted_key_of_another_company_is_undecryptable(
    api: Client, start: StartService, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    await store_certificate(api)
    other = await make_company(environment)
    stranger = await start(other, **SIGNED)
    await store_certificate(stranger)
    theirs = "select sealed_key from signing_certificates where company_id <> $1"
    await owner.execute(
        f"update signing_certificates set sealed_key = ({theirs}) where company_id = $1", other.id
    )
    assert await submit_refused(stranger) == stop("SigningKeyUnreadable", UNREADABLE)


async def test_the_previous_secret_key_still_decrypts_after_a_rotation(
    api: Client, start: StartService, owner: asyncpg.Connection
) -> None:
    await store_certificate(api)
    rotated = await start(
        **{**SIGNED, "SECRET_KEY": OTHER_KEY, "SECRET_KEY_PREVIOUS": SIGNED["SECRET_KEY"]}
    )
    await create_valid_invoice(rotated)
    await store_certificate(rotated)
    alone = await start(**{**SIGNED, "SECRET_KEY": OTHER_KEY})
    await create_valid_invoice(alone)
    verify(*await get_sent_document(owner))


# The API


async def test_a_certificate_is_stored_shown_and_removed(
    api: Client, owner: asyncpg.Connection
) -> None:
    missing = not_found("Signing certificate")
    assert (
        await request_json(api, "GET", CERTIFICATE)
        == missing
        == await request_json(api, "DELETE", CERTIFICATE)
    )
    made = issued(not_before=NOW - DAY, not_after=NOW + 100 * DAY)
    record = await store_certificate(api, made)
    assert record == {
        "subject": "CN=Kopi Tiga Sdn. Bhd., 2.5.4.5=202001234567, 2.5.4.97=C20880050010, "
        "O=Kopi Tiga Sdn. Bhd., C=MY",
        "issuer": "CN=Contoh Test Issuing CA, O=Contoh Amanah Sdn Bhd, C=MY",
        "serial": str(made.certificate.serial_number),
        "not_before": f"{NOW - DAY:%Y-%m-%dT%H:%M:%S}.000+00:00",
        "not_after": f"{NOW + 100 * DAY:%Y-%m-%dT%H:%M:%S}.000+00:00",
        "days_left": 99,
        "warning": None,
    }
    assert await request_json(api, "GET", CERTIFICATE) == (200, {"data": record})
    removed = {"success": True, "message": "Signing certificate removed."}
    assert await request_json(api, "DELETE", CERTIFICATE) == (200, removed)
    assert await request_json(api, "GET", CERTIFICATE) == missing
    found = await owner.fetchval(
        "select count(*) from signing_certificates where sealed_key is not null"
    )
    assert found == 0


async def test_a_signing_key_is_stored_encrypted_and_never_shown(
    api: Client, owner: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = issued()
    for body in (made.pair, {**made.pair, "key": key_text(made.key, "hush"), "password": "hush"}):
        await expect(api, 200, "PUT", CERTIFICATE, json=body)
    await request_json(api, "PUT", CERTIFICATE, json={**made.pair, "certificate": "no"})
    assert isinstance(made.key, RSAPrivateKey)
    secret = made.key.private_numbers().p.to_bytes(128)
    (sealed,) = await owner.fetch(
        "select sealed_key from signing_certificates where removed_at is null"
    )
    assert len(sealed["sealed_key"]) > 1000 and secret[8:40] not in sealed["sealed_key"]
    report = caplog.text + str(await request_json(api, "GET", CERTIFICATE))
    assert "hush" not in report and made.key_pem.splitlines()[5] not in report


async def test_a_new_certificate_removes_the_key_of_the_old_one(
    api: Client, owner: asyncpg.Connection
) -> None:
    first, second = issued(), issued(key=rsa_key("second"))
    await store_certificate(api, first)
    await create_valid_invoice(api)
    await store_certificate(api, second)
    await create_valid_invoice(api)
    assert signed_by((await get_sent_document(owner))[1]) == second.der
    rows = await owner.fetch(
        "select certificate, sealed_key, removed_at from signing_certificates order by id"
    )
    assert [
        (row["certificate"], row["sealed_key"] is None, row["removed_at"] is None) for row in rows
    ] == [
        (first.der, True, False),
        (second.der, False, True),
    ]


async def test_concurrent_changes_leave_one_certificate(
    api: Client, owner: asyncpg.Connection
) -> None:
    made = [issued() for _ in range(6)]
    await asyncio.gather(*[store_certificate(api, each) for each in made])
    assert (
        await owner.fetchval("select count(*) from signing_certificates where removed_at is null")
        == 1
    )
    await create_valid_invoice(api)


@pytest.mark.parametrize(
    "change, faults",
    [
        (
            lambda: {
                "certificate": issued(not_before=NOW - 9 * DAY, not_after=NOW).certificate_pem
            },
            {"/certificate": "expired"},
        ),
        (
            lambda: {"certificate": issued(not_before=NOW + DAY).certificate_pem},
            {"/certificate": "not_yet_valid"},
        ),
        (
            lambda: {"certificate": "here", "key": "there"},
            {"/certificate": "format", "/key": "format"},
        ),
        (lambda: {"issuer_form": "reversed"}, {"/issuer_form": "enum"}),
        (lambda: {"issuer": "x"}, {"/issuer": "unknown"}),
    ],
)
async def test_an_invalid_certificate_or_key_is_named_by_its_path(
    api: Client, change: Callable[..., Any], faults: dict[str, Any]
) -> None:
    status, body = await request_json(api, "PUT", CERTIFICATE, json={**issued().pair, **change()})
    assert (status, {each["path"]: each["rule"] for each in body["errors"]}) == (422, faults)
    await expect(api, 404, "GET", CERTIFICATE)


async def test_without_a_secret_key_no_signing_key_is_stored(start: StartService) -> None:
    api = await start()
    message = "The service cannot store private keys: SECRET_KEY is not set. Ask the operator."
    assert await request_json(api, "PUT", CERTIFICATE, json=issued().pair) == (
        409,
        {"message": message, "code": "encryption_not_configured"},
    )


async def test_a_stale_if_match_does_not_change_the_certificate(api: Client) -> None:
    await store_certificate(api)
    async with api.get(CERTIFICATE) as response:
        etag = {"If-Match": response.headers["ETag"]}
    await expect(api, 200, "PUT", CERTIFICATE, json=issued().pair, headers=etag)
    for method, body in (("PUT", {"json": issued().pair}), ("DELETE", {})):
        await expect(api, 412, method, CERTIFICATE, headers=etag, **body)
    await expect(api, 200, "DELETE", CERTIFICATE)
    await expect(api, 412, "PUT", CERTIFICATE, json=issued().pair, headers=etag)


# Warnings


async def test_a_certificate_of_another_company_is_stored_with_a_warning(api: Client) -> None:
    warning = (await store_certificate(api, issued("C25845632020")))["warning"]
    assert "is C25845632020, not the company's TIN" in warning and "DS311" in warning
    assert "DS307" in (await store_certificate(api, issued(subject={TIN: None})))["warning"]
    invoice_id = await create_submitted_invoice(api)
    await wait_for_status(api, invoice_id, "Invalid")
    (found,) = await get_documents(api, invoice_id)
    assert [error["code"] for error in found["errors"]] == ["DS307"]


async def test_an_expiring_certificate_is_logged_once_a_day(
    api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    soon = issued(not_after=NOW + 10 * DAY)
    wording = f"The signing certificate expires on {NOW + 10 * DAY:%Y-%m-%d}, in 9 days."
    assert (await store_certificate(api, soon))["warning"] == wording
    for _ in range(3):
        await create_valid_invoice(api)
    assert caplog.text.count(wording) == 1


async def test_preflight_reports_signing_errors_and_warnings(api: Client) -> None:
    invoice_id = await create_invoice(api)
    _, report = await request_json(api, "POST", f"/api/invoices/{invoice_id}/preflight", json={})
    assert (report["ready"], [each["code"] for each in report["errors"]]) == (False, ["DS301"])
    await store_certificate(api, issued(not_after=NOW + 10 * DAY))
    _, report = await request_json(api, "POST", f"/api/invoices/{invoice_id}/preflight", json={})
    assert report["ready"] and "expires" in report["warnings"][-1]["message"]
    later = (NOW + 11 * DAY).isoformat()
    path = f"/api/invoices/{invoice_id}/preflight"
    _, report = await request_json(api, "POST", path, json={"at": later})
    assert "DS304" in [each["code"] for each in report["errors"]]
