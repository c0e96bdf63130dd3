"""Lists and pages of invoices, notes and consolidated invoices, and what can be done with one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from service.dashboard import pages
from service.dashboard.numbers import read_number
from service.dashboard.operations import Failed, call, pass_through, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import READ, WRITE
from service.db.statements import sql
from service.documents import money, states
from service.documents.printing import tax_name
from service.http import app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

PER_PAGE = 25
TEXTS = pages.TEXTS["documents"]

#: Members of a body that its amounts depend on -> members of a record.
AMOUNTS = {
    "lineItems": "line_items",
    "invoiceLevelAllowanceCharge": "invoice_level_allowance_charge",
    "prepayment": "prepayment",
    "payableRoundingAmount": "payable_rounding_amount",
}


def read_amounts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a record that its amounts depend on, in the shape of a body."""
    return {name: record.get(member) for name, member in AMOUNTS.items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: the path of its pages and of its operations, and its texts.

    `types` are the values of its type; `subject` is its name in the audit log, and `column` its
    foreign key in other tables. `code` is the member of a record with its code.
    """

    path: str
    api: str
    texts: str
    types: tuple[str, ...]
    subject: str
    column: str
    cancelling: str = "cancel-latest-invoice-submitted"
    code: str = "invoice_code"

    @property
    def t(self) -> Mapping[str, Any]:
        """The texts of the kind."""
        return TEXTS["kinds"][self.texts]


INVOICES = Kind(
    "/invoices",
    "/api/invoices",
    "invoice",
    (
        "INVOICE",
        "SELF_BILLED_INVOICE",
        "PENDING_FINALIZE_INVOICE",
        "PENDING_FINALIZE_SELF_BILLED_INVOICE",
    ),
    "invoice",
    "invoice_id",
)
NOTES = Kind(
    "/notes",
    "/api/adjustment-notes",
    "note",
    ("CREDIT_NOTE", "DEBIT_NOTE", "REFUND_NOTE"),
    "adjustment note",
    "adjustment_note_id",
    "cancel-latest-adjustment-note-submitted",
    "code",
)
CONSOLIDATED = Kind(
    "/consolidated",
    "/api/consolidated-invoices",
    "consolidated",
    ("CONSOLIDATED_INVOICE", "CONSOLIDATED_SELF_BILLED_INVOICE"),
    "consolidated invoice",
    "consolidated_invoice_id",
)
KINDS = (INVOICES, NOTES, CONSOLIDATED)
FILTERS = ("status", "type", "issued_from", "issued_to", "query", "sort")


@dataclass(frozen=True, slots=True)
class Meta:
    """The place of a page in its list."""

    first: int
    last: int
    total: int
    previous: str | None
    next: str | None


def make_meta(path: str, query: Mapping[str, str], number: int, total: int) -> Meta:
    """Return the place of a page. `query` are the filters to keep."""

    def link(number: int) -> str:
        return f"{path}?{urlencode({**query, 'page': number})}"

    first = min(total, (number - 1) * PER_PAGE + 1)
    last = min(total, number * PER_PAGE)
    return Meta(
        first,
        last,
        total,
        link(number - 1) if number > 1 else None,
        link(number + 1) if last < total else None,
    )


def read_page_number(request: web.Request) -> int:
    """Return the number of the page that is shown."""
    return read_number(request.query.get("page", ""), 7) or 1


async def read_next_code(request: web.Request, kind: Kind) -> int:
    """Return the code after that of the newest document."""
    newest = (await read(request, kind.api, {"per_page": 1}))["data"]
    return int(newest[0][kind.code]) + 1 if newest else 1


def read_filters(request: web.Request) -> dict[str, str]:
    """Return the filters of a list page."""
    query = {name: request.query[name].strip() for name in FILTERS if request.query.get(name)}
    return {name: text for name, text in query.items() if text}


async def show_list(kind: Kind, request: web.Request) -> web.Response:
    """Return a page of a list, with its filters. Invalid filters are shown at their fields."""
    filters, number = read_filters(request), read_page_number(request)
    query = {**filters, "page": number, "per_page": PER_PAGE}
    answer = await call(request, "GET", kind.api, query=query)
    if answer.status == 422:
        return render(
            request,
            "document_list.html",
            422,
            kind=kind,
            filters=filters,
            rows=[],
            meta=make_meta(kind.path, filters, 1, 0),
            wrong=answer.violations,
        )
    if not answer.is_success:
        raise Failed(answer)
    found = answer.value
    return render(
        request,
        "document_list.html",
        kind=kind,
        filters=filters,
        rows=found["data"],
        meta=make_meta(kind.path, filters, number, found["meta"]["total"]),
        wrong={},
    )


async def show_document(kind: Kind, request: web.Request, **more: Any) -> web.Response:
    """Return the page of a document."""
    place = f"{kind.api}/{request.match_info['id']}"
    record = await read(request, place)
    submitted = await read(request, f"{place}/submitted-documents")
    checks = None
    if record["status"] in ("Draft", "Invalid"):
        checks = (await call(request, "POST", f"{place}/preflight")).value
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        subject = f"{kind.subject} {record['id']}"
        activity = await sql.activity_of(conn, company_id=company, subject=subject)
    status = more.pop("status", 200)
    return render(
        request,
        "document.html",
        status,
        kind=kind,
        record=record,
        number=str(record[kind.code]),
        sums=money.compute_document(read_amounts(record)),
        tax_name=tax_name,
        submitted=submitted,
        latest_errors=_find_latest_errors(record, submitted),
        checks=checks,
        activity=activity,
        links=await read(request, f"{place}/links"),
        cancellable=_find_time_left(submitted),
        is_locked=record["status"] in states.LOCKED,
        **{"message": None, "problems": [], "shared": None, "picture": None, **more},
    )


def _find_latest_errors(
    record: Mapping[str, Any], submitted: Sequence[Mapping[str, Any]]
) -> Sequence[Any]:
    """Return why the latest submission failed, until the document is changed."""
    if not submitted or submitted[0]["status"] not in ("Invalid", "Rejected"):
        return []
    failed_at = datetime.fromisoformat(submitted[0]["updated_at"])
    changed_at = datetime.fromisoformat(record["updated_at"])
    is_changed = changed_at > failed_at + timedelta(seconds=1)
    return [] if is_changed else submitted[0]["errors"]


def _find_time_left(submitted: Sequence[Mapping[str, Any]]) -> timedelta | None:
    """Return how long the latest submitted document can still be cancelled, or None."""
    if not submitted or submitted[0]["status"] != "Valid":
        return None
    until = datetime.fromisoformat(submitted[0]["cancellable_until"])
    left = until - datetime.now(until.tzinfo)
    return left if left > timedelta(0) else None


async def act(kind: Kind, action: str, request: web.Request) -> web.Response:
    """Submit, cancel or delete a document, and show the outcome."""
    place = f"{kind.api}/{request.match_info['id']}"
    form = await request.post()
    if action == "delete":
        answer = await call(request, "DELETE", place)
        if answer.is_success:
            return redirect(f"{kind.path}?notice=deleted")
    elif action == "submit":
        body = {"resubmit": True} if "resubmit" in form else {}
        answer = await call(request, "POST", f"{place}/submit-to-portal", body)
    else:
        reason = str(form.get("reason", "")).strip()
        answer = await call(
            request, "POST", f"{place}/{kind.cancelling}", {"reason": reason} if reason else {}
        )
    if answer.is_success:
        return redirect(f"{request.path.rsplit('/', 1)[0]}?notice={action}")
    if answer.status == 404:
        raise Failed(answer)
    problems = answer.value.get("errors", [])
    return await show_document(
        kind, request, status=answer.status, message=answer.message, problems=problems
    )


async def show_part(kind: Kind, part: str, request: web.Request) -> web.Response:
    """Return the printed page, the QR code or the export of a document."""
    answer = await call(request, "GET", f"{kind.api}/{request.match_info['id']}/{part}")
    if not answer.is_success:
        raise Failed(answer)
    return pass_through(answer)


def _declare(kind: Kind) -> None:
    """Declare the pages of a kind of document."""
    record = f"{kind.path}/{{id:[0-9]+}}"
    page("GET", kind.path)(partial(show_list, kind))
    page("GET", record)(partial(show_document, kind))
    for action in ("submit", "cancel", "delete"):
        page("POST", f"{record}/{action}", right=WRITE)(partial(act, kind, action))
    for part in ("print", "qr.svg", "qr.png", "export"):
        page("GET", f"{record}/{part}", right=READ)(partial(show_part, kind, part))


for _kind in KINDS:
    _declare(_kind)
