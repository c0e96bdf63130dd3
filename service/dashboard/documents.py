"""Lists and pages of invoices, notes and consolidated invoices, and what can be done with one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from aiohttp import web
from yarl import URL

from service.api import adjustment_notes, consolidated_invoices, invoices, pagination
from service.api.documents import Documents
from service.api.pagination import Page
from service.api.printing import QUIET, make_code
from service.api.records import read_ids
from service.dashboard import pages
from service.dashboard.formats import amount, listed_party
from service.dashboard.operations import (
    ETAG,
    SHOWN,
    Failed,
    Findings,
    answer_bytes,
    call,
    check,
    find_messages,
    pass_through,
    read,
)
from service.dashboard.outcomes import (
    FOR_ADMINISTRATOR,
    describe_failure,
    describe_not_sent,
    describe_notice,
    describe_submitting,
    explain,
)
from service.dashboard.pages import find_notice, page, redirect, render
from service.dashboard.repetition import take_secrets
from service.dashboard.sessions import ADMINISTER, SESSION, WRITE
from service.db.statements import sql
from service.documents import codes, money, printing, states
from service.errors import ValidationError
from service.http.access import read_own
from service.http.forms import FORM, read_number
from service.http.requests import or_not_found
from service.json_types import JsonMapping, JsonObject, Row
from service.offload import offload
from service.schema import name_in_record

PER_PAGE = 25
TEXTS = pages.TEXTS["documents"]

#: Members of a body that its amounts depend on.
AMOUNTS = ("lineItems", "invoiceLevelAllowanceCharge", "prepayment", "payableRoundingAmount")


def read_amounts(record: JsonMapping) -> JsonObject:
    """Return the members of a record that its amounts depend on, in the shape of a body."""
    return {name: record.get(name_in_record(name)) for name in AMOUNTS}


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of document on pages: their path, its resource in the API, and its texts.

    `code` is the member of a record with its code.
    """

    path: str
    documents: Documents
    texts: str
    code: str = "invoice_code"

    @property
    def api(self) -> str:
        """The path of its operations."""
        return self.documents.path

    @property
    def t(self) -> JsonMapping:
        """The texts of the kind."""
        return TEXTS["kinds"][self.texts]


INVOICES = Kind("/invoices", invoices.DOCUMENTS, "invoice")
NOTES = Kind("/notes", adjustment_notes.DOCUMENTS, "note", "code")
CONSOLIDATED = Kind("/consolidated", consolidated_invoices.DOCUMENTS, "consolidated")
KINDS = (INVOICES, NOTES, CONSOLIDATED)
HOME_CURRENCY = "MYR"
COUNT_TO = 1000  # matches of a search
MOST_NOTES = 100  # on the page of an invoice
#: The status of a failed submission, whose reasons the record keeps and its page shows.
RECORDED = 400
FILTERS = ("status", "type", "issued_from", "issued_to", "query", "sort")


@dataclass(frozen=True, slots=True)
class Target:
    """A document that a note adjusts."""

    kind: Kind
    id: int
    code: int
    party: str
    currency: str

    @property
    def label(self) -> str:
        return f"{self.kind.t['one']} {self.code}"


def find_document(row: Row) -> tuple[Kind, int]:
    kind = next(kind for kind in KINDS if kind.documents.kind.name == row["kind"])
    return kind, row["document_id"]


def read_page(request: web.Request) -> dict[str, int]:
    """Return the parameters of the API for the page of a list that is shown."""
    return {"page": read_number(request.query.get("page", ""), 7) or 1, "per_page": PER_PAGE}


async def read_next_code(request: web.Request, kind: Kind, of_type: str = "") -> int:
    """Return the code after that of the newest document, or of the newest one of a type."""
    newest = (await read(request, kind.api, {"per_page": 1, "type": of_type}))["data"]
    return int(newest[0][kind.code]) + 1 if newest else 1


async def read_target(request: web.Request, document_id: int) -> Target:
    """Return the document that a note adjusts, or the document itself of another kind."""
    rows = await read_own(request, sql.documents_listed, ids=[document_id])
    return describe_target(or_not_found(next(iter(rows), None), "Document"))


def describe_target(row: Row) -> Target:
    kind, document_id = find_document(row)
    return Target(kind, document_id, row["source_code"], listed_party(row), row["currency"])


def choose_currency(own: str | None, target: Target | None) -> str:
    """Return the currency of a document. That of a note is its target's."""
    return target.currency if target else own or HOME_CURRENCY


def read_filters(request: web.Request) -> dict[str, str]:
    query = request.query
    return {name: text for name in FILTERS if (text := query.get(name, "").strip())}


def choose_page(request: web.Request, kind: Kind, **query: int) -> Page:
    """Return the page of the API's list with the filters of a list page.

    Raises ValidationError for invalid filters.
    """
    url = URL.build(path=kind.api, query={**read_filters(request), **query})
    return pagination.read_page(request.clone(rel_url=url), kind.documents.filters)


async def show_list(kind: Kind, request: web.Request) -> web.Response:
    """Return a page of a list, with its filters. Invalid filters are shown at their fields."""
    rows: Sequence[Row] = ()
    meta: JsonMapping = {"total": 0}
    wrong: dict[str, str] = {}
    try:
        page = choose_page(request, kind, **read_page(request), count_to=COUNT_TO)
        ids, meta = await read_ids(request, page, kind.documents.kind.name)
        rows = await read_own(request, sql.documents_listed, ids=ids)
    except ValidationError as error:
        wrong = find_messages(error.body)
    return await render(
        request,
        "document_list.html",
        422 if wrong else 200,
        kind=kind,
        filters=read_filters(request),
        rows=rows,
        targets={row["id"]: describe_target(row) for row in rows if kind is NOTES},
        meta=meta,
        wrong=wrong,
    )


async def show_document(
    kind: Kind,
    request: web.Request,
    status: int = 200,
    message: str | None = None,
    problems: Sequence[JsonMapping] = (),
) -> web.Response:
    place = f"{kind.api}/{request.match_info['id']}"
    shown = (await call(request, "GET", place)).require_success()
    record: JsonMapping = shown.value
    submitted = await read(request, f"{place}/submitted-documents")
    checks = await check(request, place) if record["status"] in ("Draft", "Invalid") else None
    activity = await read_own(
        request, sql.activity_of, subject=f"{kind.documents.kind.noun} {record['id']}"
    )
    notes = await read_own(
        request, sql.notes_of_document, document_id=record["id"], most=MOST_NOTES
    )
    target = await read_target(request, record["id"]) if kind is NOTES else None
    currency = choose_currency(record.get("currency_code"), target)
    rate = record.get("exchange_rate")
    sums = await offload(answer_bytes(request), money.compute_document, read_amounts(record))
    latest_errors = find_latest_errors(record, submitted)
    has_findings = bool(latest_errors or (checks and checks.errors))
    created = await take_secrets(request, f"{place}/links")
    return await render(
        request,
        "document.html",
        status,
        kind=kind,
        record=record,
        etag=shown.headers["ETag"],
        target=target,
        currency=currency,
        home=printing.convert_home(sums.payable, rate)
        if rate and currency != HOME_CURRENCY
        else None,
        number=str(record[kind.code]),
        sums=sums,
        lines=_describe_lines(record, sums, currency),
        submitted=submitted,
        latest_errors=latest_errors,
        warnings=_choose_warnings(request, checks),
        failed=describe_not_sent(record["last_submission"]) if latest_errors else None,
        submitting=await _describe_submitting(request, record),
        notice=describe_notice(request.query.get("notice", ""), record, has_findings)
        or find_notice(request),
        checks=checks,
        activity=[{**entry, "code": record[kind.code]} for entry in activity],
        links=await read(request, f"{place}/links"),
        notes=notes,
        cancellable=_find_time_left(submitted),
        is_locked=record["status"] in states.LOCKED,
        created=created,
        picture=make_code(created["url"]).svg_data_uri(scale=4, border=QUIET, light="#fff")
        if created
        else None,
        message=message,
        problems=problems,
    )


def _describe_lines(
    record: JsonMapping, sums: money.Totals, currency: str
) -> Iterator[tuple[object, ...]]:
    """Yield the cells of each line. The page reads them while it is rendered, in the thread."""
    names = codes.get_names("classifications")
    for number, (item, line) in enumerate(zip(record["line_items"], sums.lines, strict=False), 1):
        classes = (f"{code} {names.get(code, '')}" for code in item.get("classifications") or ())
        yield (
            number,
            item["description"],
            ", ".join(classes),
            printing.quantity(item["unit"]),
            f"{currency}\u00a0{printing.price(item['unit']['price'])}",
            amount(line.net, currency),
            amount(line.tax, currency),
        )


def _choose_warnings(request: web.Request, checks: Findings | None) -> Sequence[JsonMapping]:
    """Return the warnings of a document that are for the person."""
    warnings = checks.warnings if checks else ()
    if request[SESSION].may(ADMINISTER):
        return warnings
    return [each for each in warnings if each["code"] not in FOR_ADMINISTRATOR]


async def _describe_submitting(request: web.Request, record: JsonMapping) -> str | None:
    """Return what is known of a submission without outcome, or None for another document."""
    if record["status"] != "Submitting":
        return None
    row = await read_own(request, sql.submission_of_subject, document_id=record["id"])
    return describe_submitting(row["state"], row["is_held"])


def find_latest_errors(
    record: JsonMapping, submitted: Sequence[JsonMapping]
) -> Sequence[JsonMapping]:
    """Return why the latest submission failed, until the document is changed.

    Failed checks are left out, because the page shows the checks of the present document.
    """
    last = record["last_submission"]
    if last is None or last["status"] not in ("Invalid", "Rejected", "NotSent"):
        return []
    if last["code"] == "check_failed":
        return []
    failed_at = datetime.fromisoformat(last["at"])
    changed_at = datetime.fromisoformat(record["updated_at"])
    is_changed = changed_at > failed_at + timedelta(seconds=1)
    return [] if is_changed else explain(last["code"], last.get("errors") or submitted[0]["errors"])


def _find_time_left(submitted: Sequence[JsonMapping]) -> timedelta | None:
    """Return how long the latest submitted document can still be cancelled, or None."""
    if not submitted or submitted[0]["status"] != "Valid":
        return None
    until = datetime.fromisoformat(submitted[0]["cancellable_until"])
    left = until - datetime.now(until.tzinfo)
    return left if left > timedelta(0) else None


async def act(kind: Kind, action: str, request: web.Request) -> web.Response:
    """Submit, cancel or delete a document as the page has shown it, and show the outcome."""
    place = f"{kind.api}/{request.match_info['id']}"
    form = request[FORM]
    request[SHOWN] = form.get(ETAG, "")
    if action == "delete":
        answer = await call(request, "DELETE", place)
    elif action == "submit":
        body = {"resubmit": True} if "resubmit" in form else {}
        answer = await call(request, "POST", f"{place}/submit-to-portal", body)
    else:
        reason = form.get("reason", "").strip()
        body = {"reason": reason} if reason else {}
        answer = await call(request, "POST", f"{place}/{kind.documents.cancelling}", body)
    if answer.is_success or (action == "submit" and answer.status == RECORDED):
        page = kind.path if action == "delete" else request.path.rsplit("/", 1)[0]
        return redirect(f"{page}?notice={action}")
    if answer.status == 404:
        raise Failed(answer)
    message, problems = describe_failure(action, answer), answer.value.get("errors", [])
    return await show_document(kind, request, answer.status, message, problems)


async def show_part(kind: Kind, part: str, request: web.Request) -> web.Response:
    answer = await call(request, "GET", f"{kind.api}/{request.match_info['id']}/{part}")
    return pass_through(answer.require_success())


for _kind in KINDS:
    _record = f"{_kind.path}/{{id:[0-9]+}}"
    page("GET", _kind.path)(partial(show_list, _kind))
    page("GET", _record)(partial(show_document, _kind))
    for _action in ("submit", "cancel", "delete"):
        page("POST", f"{_record}/{_action}", right=WRITE)(partial(act, _kind, _action))
    for _part in ("print", "qr.svg", "qr.png", "export"):
        page("GET", f"{_record}/{_part}")(partial(show_part, _kind, _part))
