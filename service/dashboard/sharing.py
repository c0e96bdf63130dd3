"""Links for people without an account: to a document's printed page, and to ask for an invoice.

The operations of the API create, list and revoke links: service/api/links.py.
"""

from functools import partial

from aiohttp import web

from service.api.links import LIFETIMES, REQUEST, VIEW
from service.dashboard import pages
from service.dashboard.document_form import Form, build_body, read_fields
from service.dashboard.documents import INVOICES, KINDS, Kind, find_document
from service.dashboard.editing import PARTY
from service.dashboard.operations import Failed, call, pass_through, read_company
from service.dashboard.pages import page, redirect, render
from service.dashboard.repetition import (
    call_once,
    find_created,
    form_key,
    give_key,
    renew_key,
    show_secrets,
)
from service.dashboard.sessions import WRITE, set_cookie
from service.db.statements import sql
from service.documents import codes, states
from service.errors import KeyReused, NotFound, TooManyRequests, retry_after
from service.http import app_keys
from service.http.access import identify, read_own, run_shared, zone_of
from service.http.client_address import SENDER
from service.http.forms import FORM
from service.http.tokens import digest_of, make_token
from service.json_types import JsonMapping

REQUESTS = "/api/einvoice-requests"
#: The query string of the page after the buyer's request was stored.
SENT = "sent=yes"
TEXTS = pages.TEXTS["sharing"]
PARTY_TYPES = pages.TEXTS["form"]["party_types"]
COOKIE = "receipt"  # of the page of a link: the secret of the requests that the browser makes


async def create_link(kind: Kind, request: web.Request) -> web.Response:
    """Make a link, and go to the page that shows it once, with its QR code."""
    body = {"purpose": request[FORM].get("purpose", VIEW)}
    document_id = request.match_info["id"]
    (await call_once(request, "POST", f"{kind.api}/{document_id}/links", body)).require_success()
    return show_secrets(request, f"{kind.path}/{document_id}")


async def revoke_link(kind: Kind, request: web.Request) -> web.Response:
    """Revoke a link. It stops working at once."""
    document_id, link_id = request.match_info["id"], request.match_info["link_id"]
    (await call(request, "DELETE", f"{kind.api}/{document_id}/links/{link_id}")).require_success()
    return redirect(f"{kind.path}/{document_id}?notice=unshared")


async def _enter(request: web.Request, purpose: str) -> JsonMapping:
    """Return the link of the path, and give the request its company. Raises NotFound."""
    if wait := request.app[app_keys.LIMITS].public_pages.take(request[SENDER].group):
        raise TooManyRequests(pages.TEXTS["errors"]["too_many"], retry_after(wait))
    digest = digest_of(request.match_info["token"])
    row = await run_shared(request, sql.document_link_of, wanted=digest)
    if row is None or row["purpose"] != purpose:
        raise NotFound(TEXTS["gone"])
    request[app_keys.COMPANY] = row["company_id"]
    request[app_keys.LINK] = row["id"]
    identify(request, f"link {row['id']}")
    return row


@page("GET", "/shared/{token}", right=None)
async def show_shared(request: web.Request) -> web.Response:
    link = await _enter(request, VIEW)
    kind, document_id = find_document(link)
    answer = await call(request, "GET", f"{kind.api}/{document_id}/print")
    if not answer.is_success:
        raise NotFound(TEXTS["gone"])
    return pass_through(answer)


async def _enter_receipt(request: web.Request) -> JsonMapping:
    """Return the invoice of the link of the path. Raises NotFound. See `_enter`."""
    link = await _enter(request, REQUEST)
    answer = await call(request, "GET", f"{INVOICES.api}/{link['document_id']}")
    if answer.status == 404:
        raise NotFound(TEXTS["gone"])
    return answer.require_success().value


@page("GET", "/receipt/{token}", right=None)
async def show_receipt(request: web.Request) -> web.Response:
    """Return the form in which a buyer asks for an invoice in their name.

    After a rejection the buyer can ask again, also on a page that was open.
    """
    record = await _enter_receipt(request)
    own = await _read_outcome(request)
    is_waiting = own is not None and own["status"] == "Pending"
    is_sent = is_waiting and request.query_string == SENT
    if not is_sent and (keyed := give_key(request)):
        return keyed
    if not is_waiting and await find_created(request, REQUESTS) is not None:
        return redirect(request.path)  # which gives the form another key
    fields = {"/type": "LOCAL_INDIVIDUAL", "/registration/type": "NRIC", "/address/country": "MYS"}
    response = await _render_receipt(request, record, Form(fields), is_sent, own)
    # Before the form is sent, so that a response that is lost costs no secret.
    if _read_digest(request) is None:
        lifetime = int(LIFETIMES[REQUEST].total_seconds())
        set_cookie(request, response, COOKIE, make_token(), max_age=lifetime, path=request.path)
    return response


@page("POST", "/receipt/{token}", right=None)
async def send_receipt(request: web.Request) -> web.Response:
    """Store the buyer's request as pending, or show the violations at their fields.

    If the invoice has its buyer meanwhile, nothing is stored, and the page says so.
    """
    record = await _enter_receipt(request)
    fields = {name: text for name, text in read_fields(request)[0].items() if name in PARTY}
    body = build_body(fields, {}, zone_of(request))
    body.pop("lineItems")
    if _is_issued(record):
        return await _render_receipt(request, record, Form(fields, status=409))
    body["invoiceCode"] = record["invoice_code"]
    if digest := _read_digest(request):
        request[app_keys.VISITOR_SHA256] = digest
    answer = await call_once(request, "POST", REQUESTS, body)
    if answer.is_success:
        return redirect(f"{request.path}?{SENT}")
    if answer.status == 404:  # The link was revoked since it was found.
        raise NotFound(TEXTS["gone"])
    if answer.value.get("code") == KeyReused.code:
        renew_key(request)
        return await _render_receipt(request, record, Form(fields, status=409))
    if answer.status != 422:
        raise Failed(answer)
    return await _render_receipt(request, record, Form(fields, answer.violations, status=422))


def _is_issued(record: JsonMapping) -> bool:
    """Return whether an invoice has its buyer, so that no request for it can be approved."""
    return record["type"] not in states.PENDING_FINALIZE


def _read_digest(request: web.Request) -> bytes | None:
    """Return the digest of the secret that this browser has for the page, or None."""
    secret = request.cookies.get(COOKIE, "")
    return digest_of(secret) if len(secret) == len(make_token()) else None


async def _read_outcome(request: web.Request) -> JsonMapping | None:
    """Return what became of the request that this browser made by the link, or None.

    Other people who have the link, such as those who find the receipt, see nothing of it.
    """
    digest = _read_digest(request)
    if digest is None:
        return None
    return await read_own(
        request,
        sql.einvoice_request_outcome,
        link_id=request[app_keys.LINK],
        secret_sha256=digest,
    )


async def _render_receipt(
    request: web.Request,
    record: JsonMapping,
    form: Form,
    is_sent: bool = False,
    own: JsonMapping | None = None,
) -> web.Response:
    """Return the form. `record` is the invoice, `own` the outcome of the browser's own request."""
    is_issued = _is_issued(record)
    return await render(
        request,
        "receipt.html",
        form.status,
        company=(await read_company(request))["name"],
        record=record,
        fields=form.fields,
        wrong=form.wrong,
        is_issued=is_issued,
        is_sent=is_sent,
        own=own,
        types={kind: name for kind, name in PARTY_TYPES.items() if kind != "GENERAL_PUBLIC"},
        tables=codes.get_all_names(),
        form_key=form_key(request),
        is_other=form.status == 409 and not is_issued,
        focus=next(iter(form.wrong), ""),
    )


for _kind in KINDS:
    _path = f"{_kind.path}/{{id:[0-9]{{1,18}}}}/links"
    page("POST", _path, right=WRITE)(partial(create_link, _kind))
    page("POST", f"{_path}/{{link_id:[0-9]{{1,18}}}}/revoke", right=WRITE)(
        partial(revoke_link, _kind)
    )
