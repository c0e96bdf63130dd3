"""A document as it is handed out: a page to print, and the QR code of its validation link.

The page reaches nothing outside itself and runs nothing; the policy that says so is in it too, for who saves it.
"""

import asyncio
import base64
import hashlib
import io
from functools import partial
from pathlib import Path

import jinja2
import segno
from aiohttp import web

from service import json_codec
from service.api.operations import NO_LINK, PICTURES
from service.api.submissions import PLACES
from service.db.statements import sql
from service.documents import printing
from service.documents.ubl import reader
from service.errors import NotFound
from service.http import app_keys
from service.http.requests import or_not_found, path_id
from service.submission.document_kinds import CONSOLIDATED, INVOICE, NOTE

routes = web.RouteTableDef()

FOLDER = Path(__file__).with_name("templates")
LOOKS = (FOLDER / "print.css").read_text("utf-8")
LOOKS_HASH = base64.b64encode(hashlib.sha256(LOOKS.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{LOOKS_HASH}'; base-uri 'none'; form-action 'none'"
PAGE_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}

#: How a subject is read as it is stored.
STORED = {
    INVOICE: sql.invoice_print,
    NOTE: sql.adjustment_note_print,
    CONSOLIDATED: sql.consolidated_invoice_print,
}
#: What is printed as it was sent; a Draft or an Invalid one is printed as it is stored, and may
#: still be changed.
AS_SENT = {"Submitting", "Submitted", "Valid", "Cancelled"}

#: What only the portal says of a document.
UNSENT = dict.fromkeys(("uuid", "validation_link", "validated_at", "cancelled_at", "cancel_reason"))

#: Of a picture of the QR code: modules of quiet around it, pixels of one module.
QUIET, PIXELS = 4, 8


def _environment():
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = (
        printing.amount, printing.price, printing.plain, printing.share, printing.tax_name, printing.tax_rate,
        printing.unit_name, printing.day, printing.clock, printing.facts, printing.address,
    )  # fmt: skip
    made.filters.update({word.__name__: word for word in words})
    made.globals.update(looks=LOOKS, policy=POLICY)
    return made


PAGE = _environment().get_template("print.html")


async def print_document(subject, request):
    """The page: of what was sent to the portal, or of the draft."""
    company, id = request[app_keys.COMPANY], path_id(request, subject.title)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = or_not_found(await STORED[subject](conn, company_id=company, id=id), subject.title)
        issuer = await sql.issuer_get(conn, company_id=company)
        sent = None
        if row["status"] in AS_SENT:
            sent = await sql.submitted_document_print(conn, company_id=company, **subject.ids(id))
    # Thousands of lines take a while, in which others are served.
    text = await asyncio.to_thread(
        _page, row, dict(issuer), sent, request.app[app_keys.CONFIG].time_zone
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)


def _page(row, issuer, sent, zone):
    if sent:
        shown, told = reader.read(sent["document"]), dict(sent)
    else:
        source = json_codec.stored_body(row)
        shown = printing.drafted(source, issuer)
        told = {
            **UNSENT,
            "status": row["status"],
            "number": row["number"],
            "issued_at": row["issue_date"],
        }
    title, malay = printing.titles(shown.kind)
    link = told["validation_link"] if told["status"] == "Valid" else None
    return PAGE.render(
        shown=shown,
        told=told,
        title=title,
        malay=malay,
        mark=printing.MARKS.get(told["status"]),
        link=link,
        code=_code(link).svg_inline(border=QUIET, omitsize=True, light="#fff") if link else None,
        zone=zone,
    )


async def picture(kind, subject, request):
    """The QR code. Raises NotFound while there is no validation link: a picture of it is not there. README: Decisions"""
    company, id = request[app_keys.COMPANY], path_id(request, subject.title)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        or_not_found(await subject.exists(conn, company_id=company, id=id), subject.title)
        row = await sql.submitted_document_link(conn, company_id=company, **subject.ids(id))
    if not row or row["status"] != "Valid" or not row["validation_link"]:
        raise NotFound(NO_LINK.format(noun=subject.noun))
    drawn = io.BytesIO()
    _code(row["validation_link"]).save(drawn, kind=kind, border=QUIET, scale=PIXELS, light="#fff")
    return web.Response(body=drawn.getvalue(), content_type=PICTURES[kind])


def _code(link):
    """Readable with 15 % of it damaged, as printing does."""
    return segno.make_qr(link, error="m")


for place, subject, _ in PLACES:
    routes.get(f"{place}/print")(partial(print_document, subject))
    for kind in PICTURES:
        routes.get(f"{place}/qr.{kind}")(partial(picture, kind, subject))
