"""The sentences of a document's page about its submission or cancellation: one, and true."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import hold_sending
from service.config import read_config
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import wait_for_status
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, Sandbox, StartService
from tests.dashboard.test_invoice_form import FormReader, read_etag
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import STRANGER, buyer

WAIT = "please do not issue it again"
#: Sentences that contradict WAIT.
AGAIN = ("try again", "You can submit it", "Submit it again", "It was not", "is submitted.")
#: Texts of the API that are for programs.
OF_API = ("Failed to submit", "Cancellation failed", "resubmit", "invali.")


@dataclass
class World:
    """A service, its database and its portal."""

    site: Client
    owner: asyncpg.Connection
    sandbox: Sandbox
    environment: dict[str, str]


@pytest.fixture
async def site(start: StartService) -> Client:
    """A service without background work, so that an outcome stays as it is."""
    return await start(background=False, SUBMIT_WAIT_SECONDS="1")


@pytest.fixture
def world(
    site: Client, owner: asyncpg.Connection, sandbox: Sandbox, environment: dict[str, str]
) -> World:
    return World(site, owner, sandbox, environment)


async def _accept(world: World) -> None:
    """Change nothing: the portal accepts the document."""


async def _reject(world: World) -> None:
    await world.sandbox.fault("submit", "reject", code="CF999", message="Not this one.")


async def _drop(world: World) -> None:
    await world.sandbox.fault("submit", "accept_then_drop")


async def _disconnect(world: World) -> None:
    await world.sandbox.fault("login", "drop", times=20)


async def _hold(world: World) -> None:
    await run_command(read_config(world.environment), hold_sending, "A restore.")


async def _forget_tin(world: World) -> None:
    await world.owner.execute("update companies set tin_verified_at = null")


#: Name -> what the portal does, the sentence that the page then has, and a reason next to it.
SUBMISSIONS: dict[str, tuple[Callable[[World], Awaitable[None]], str, str]] = {
    "accepted": (_accept, "The document is submitted. The portal is validating it.", ""),
    "rejected": (_reject, "It was not submitted: see below.", "Not this one."),
    "unknown": (_drop, "It is not known yet whether the portal has it.", WAIT),
    "unreachable": (_disconnect, "It was not submitted: see below.", "cannot be reached"),
    "held": (_hold, "It was not submitted: see below.", "because sending is on hold"),
    "tin": (_forget_tin, "It was not submitted: see below.", "is not verified yet"),
}


def check_words(words: str, *expected: str) -> None:
    """Fail if sentences are missing, or contradict each other."""
    for sentence in expected:
        assert sentence in words, (sentence, words)
    assert not [text for text in OF_API if text in words], words
    if WAIT in words:
        assert not [text for text in AGAIN if text in words], words


@pytest.mark.parametrize("button", ["submit", "save and submit"])
@pytest.mark.parametrize("outcome", SUBMISSIONS)
async def test_a_submission_has_one_true_sentence(
    outcome: str, button: str, world: World, sign_in: SignIn
) -> None:
    prepare, sentence, reason = SUBMISSIONS[outcome]
    member = await sign_in(world.site, "member")
    place = f"/invoices/{await create_invoice(world.site)}"
    fields = FormReader(await member.get(f"{place}/edit")).fields
    await prepare(world)
    if button == "submit":
        await member.post(f"{place}/submit")
    else:
        await member.post(f"{place}/edit", {**fields, "do": "submit"})
    assert (member.status, member.path) == (200, place)
    check_words(member.words, sentence, reason)
    assert ("The document is saved." in member.words) == (
        button != "submit" and outcome != "accepted"
    )
    check_words(await member.read_words(place), reason)


async def test_words_for_the_operator_are_replaced_on_pages_and_in_forms(
    world: World, sign_in: SignIn
) -> None:
    member = await sign_in(world.site, "member")
    place = f"/invoices/{await create_invoice(world.site)}"
    await _hold(world)
    await member.post(f"{place}/submit")
    for path in ("/", place, f"{place}/edit"):
        words = await member.read_words(path)
        check_words(words, "because sending is on hold.")
        assert "A restore." not in words


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("Uncertain", "It is not known yet whether the portal has it."),
        ("NeedsPerson", "It is in manual review."),
        ("Sending", "It is being submitted."),
        ("held", "It is sent when the hold ends"),
    ],
)
async def test_each_state_of_an_open_submission_has_its_sentence(
    state: str, sentence: str, world: World, sign_in: SignIn
) -> None:
    member = await sign_in(world.site, "member")
    invoice_id = await create_invoice(world.site)
    await _drop(world)
    await submit(world.site, invoice_id)
    if state == "held":
        await _hold(world)
    stored = "Queued" if state == "held" else state
    await world.owner.execute("update submissions set state = $1", stored)
    for query in ("", "?notice=submit", "?notice=save_submit", "?notice=created"):
        words = await member.read_words(f"/invoices/{invoice_id}{query}")
        check_words(words, sentence, WAIT)
    if state in ("Uncertain", "NeedsPerson"):
        check_words(await member.read_words("/"), sentence, WAIT)


@pytest.mark.parametrize(
    ("status", "notice", "sentence"),
    [
        ("Valid", "submit", "The document is submitted. The portal has validated it."),
        ("Valid", "created", "The document is saved."),
        ("Valid", "created_before", "The form has created this document."),
        ("Invalid", "save_submit", "The document was submitted, and the portal found it invalid"),
        ("Cancelled", "cancel", "The document is cancelled."),
        ("Draft", "submit", "It was not submitted: see below."),
        ("Draft", "created", "The document is saved as a draft."),
        ("complete Draft", "submit", "It was not submitted. You can submit it again."),
        ("complete Draft", "cancel", ""),
    ],
)
async def test_a_notice_follows_the_present_status(
    status: str, notice: str, sentence: str, start: StartService, sign_in: SignIn
) -> None:
    """The address of a notice can be opened again later."""
    site = await start()
    invoice_id = await _make_status(site, status)
    member = await sign_in(site, "member")
    words = await member.read_words(f"/invoices/{invoice_id}?notice={notice}")
    check_words(words, sentence)
    assert ("saved as a draft" in words) == (status == "Draft" and notice == "created")
    assert ("is cancelled." in words) == (status == "Cancelled")


async def _make_status(site: Client, status: str) -> int:
    changes: dict[str, Any] = {"Draft": {"buyer": buyer(contactNumber="12")}}.get(status, {})
    if status.endswith("Draft"):
        return await create_invoice(site, **changes)
    if status == "Invalid":
        invoice_id = await create_invoice(site, buyer=STRANGER)
        await submit(site, invoice_id)
        await wait_for_status(site, invoice_id, "Invalid")
        return invoice_id
    invoice_id = await create_valid_invoice(site)
    if status == "Cancelled":
        await cancel_latest(site, invoice_id)
    return invoice_id


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("accept_then_drop", "It is not known yet whether the portal has cancelled it."),
        ("refuse", "The portal did not cancel it, because the 72 hours"),
    ],
)
async def test_a_cancellation_has_one_true_sentence(
    kind: str, sentence: str, start: StartService, sign_in: SignIn, sandbox: Sandbox
) -> None:
    site = await start(SUBMIT_WAIT_SECONDS="1", PORTAL_RECHECK_SECONDS="3600")
    member = await sign_in(site, "member")
    place = f"/invoices/{await create_valid_invoice(site)}"
    await member.get(place)
    refusal = {"status": 400, "code": "OperationPeriodOver", "message": "Too late."}
    await sandbox.fault("state", kind, **(refusal if kind == "refuse" else {}))
    if kind != "refuse":
        await sandbox.fault("details", "error_before", status=500, times=20)
    await member.post(f"{place}/cancel", {"reason": "Wrong amount"})
    check_words(member.words, sentence)


async def test_a_cancelled_document_is_not_submitted_again_by_an_old_page(
    start: StartService, sign_in: SignIn
) -> None:
    site = await start()
    invoice_id = await _make_status(site, "Cancelled")
    member = await sign_in(site, "member")
    await member.fill_in(f"/invoices/{invoice_id}", path=f"/invoices/{invoice_id}/submit")
    check_words(member.words, "It was cancelled and has not changed since.")


@pytest.mark.parametrize("action", ["submit", "cancel", "delete"])
async def test_a_button_concerns_only_what_its_page_has_shown(
    action: str, start: StartService, sign_in: SignIn
) -> None:
    site = await start()
    is_sent = action == "cancel"
    invoice_id = await (create_valid_invoice(site) if is_sent else create_invoice(site))
    page, member = f"/invoices/{invoice_id}", await sign_in(site, "member")
    await member.get(page)
    shown = {"reason": "Wrong amount", "etag": read_etag(member.text)}
    if is_sent:
        await cancel_latest(site, invoice_id)
    changed = {"buyer": buyer(name="Tan Ah Kow")}
    await expect(site, 200, "PUT", f"/api{page}", json=changed)
    if is_sent:
        await submit(site, invoice_id)
        await wait_for_status(site, invoice_id, "Valid")
    before = await request_json(site, "GET", f"/api{page}")
    await member.post(f"{page}/{action}", shown)
    assert member.status == 412
    check_words(member.words, "Somebody has changed this since you opened the page")
    assert await request_json(site, "GET", f"/api{page}") == before
    await member.post(f"{page}/{action}", {**shown, "etag": read_etag(member.text)})
    assert member.status == 200 and "Somebody" not in member.words
