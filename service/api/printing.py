"""Printable pages of documents, and the QR code of the validation link.

A page loads nothing and runs no script. The policy that forbids it is also part of the page, for
saved copies.
"""

import base64
import hashlib
import io
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import segno
from aiohttp import web

from service import json_codec, templates
from service.api.documents import Documents
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import printing
from service.documents.kind import CONSOLIDATED, DocumentKind
from service.documents.optional_members import read_stored_body
from service.documents.ubl import reader
from service.errors import NotFound
from service.http.access import read_own, read_own_with, zone_of
from service.http.requests import or_not_found, read_path_id
from service.json_types import JsonMapping, JsonObject, Row
from service.offload import offload

#: File extension of a QR code -> its media type.
PICTURES = {"svg": "image/svg+xml", "png": "image/png"}
NO_LINK = "The {noun} is not Valid, so it has no validation link."

FOLDER = Path(__file__).with_name("templates")
STYLE = (FOLDER / "print.css").read_text("utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
PAGE_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}

#: Statuses in which the sent document is printed. In other statuses the stored document is printed,
#: which can still change.
AS_SENT = {"Submitting", "Submitted", "Valid", "Cancelled"}

#: Facts about a document that only the portal has.
UNSENT = dict.fromkeys(("uuid", "validation_link", "validated_at", "cancelled_at", "cancel_reason"))

#: Quiet zone of the QR code in modules, and pixels per module.
QUIET, PIXELS = 4, 8

FILTERS = (
    printing.amount,
    printing.signed,
    printing.plain,
    printing.day,
    printing.clock,
    printing.facts,
    printing.address,
)
ENVIRONMENT = templates.make_environment(FOLDER, FILTERS, style=STYLE, policy=POLICY)


def declare(documents: Documents) -> None:
    kind, path = documents.kind, documents.record_path
    documents.operation(
        f"GET {path}/print",
        f"Print {kind.with_article}",
        "text/html",
        description="A page for paper and screen, without scripts. For a submitted document it "
        "shows the sent document, with the QR code of the validation link while it is Valid. Other "
        "pages are marked as draft, not validated or cancelled.",
        name=f"print_{kind.name}",
    )(partial(print_document, kind))
    for extension, media_type in PICTURES.items():
        documents.operation(
            f"GET {path}/qr.{extension}",
            f"Get the QR code of the validation link as {extension.upper()}",
            media_type,
            errors=(NotFound(NO_LINK.format(noun=kind.noun)),),
            description="It exists while the document is Valid.",
            name=f"get_{kind.name}_qr_{extension}",
        )(partial(get_qr_code, extension, kind))


async def print_document(kind: DocumentKind, request: web.Request) -> web.Response:
    """Return the page of the sent document, or of the draft."""
    document_id = read_path_id(request, kind.title)
    row, issuer, sent = await read_own_with(request, partial(_read_printed, kind, document_id))
    size = len(sent["content"] if sent else row["body"])
    text = await offload(size, _render, kind, row, dict(issuer), sent, zone_of(request))
    return web.Response(text=text, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)


async def _read_printed(
    kind: DocumentKind, document_id: int, conn: Connection
) -> tuple[Row, Row, Row | None]:
    """Return the stored document, its issuer, and the sent document if the page shows it."""
    row = await sql.document_load(conn, id=document_id, kind=kind.name)
    or_not_found(row, kind.title)
    issuer = await sql.issuer_get(conn)
    if row["status"] not in AS_SENT:
        return row, issuer, None
    sent = await sql.submitted_document_print(conn, document_id=document_id)
    return row, issuer, sent


def _render(
    kind: DocumentKind, row: Row, issuer: JsonMapping, sent: Row | None, zone: ZoneInfo
) -> str:
    record: JsonObject
    if sent:
        shown, record = reader.read(sent["content"]), dict(sent)
    else:
        shown = printing.make_draft_printout(read_stored_body(row["body"]), issuer)
        record = {
            **UNSENT,
            "status": row["status"],
            "number": row["number"],
            "issued_at": row["issue_date"],
        }
    title, malay = printing.get_titles(shown.kind, consolidated=kind is CONSOLIDATED)
    link = record["validation_link"] if record["status"] == "Valid" else None
    return templates.render(
        ENVIRONMENT,
        "print.html",
        shown=shown,
        lines=printing.describe_lines(shown),
        record=record,
        title=title,
        malay=malay,
        mark=printing.MARKS.get(record["status"]),
        link=link,
        code=make_code(link).svg_inline(border=QUIET, omitsize=True, light="#fff")
        if link
        else None,
        zone=zone,
    )


async def get_qr_code(extension: str, kind: DocumentKind, request: web.Request) -> web.Response:
    """Return the QR code of the validation link. Raises NotFound if there is no link."""
    document_id = read_path_id(request, kind.title)
    records = await read_own(
        request, sql.submitted_document_page, kind=kind.name, document_id=document_id
    )
    latest = next(iter(json_codec.loads(or_not_found(records, kind.title).encode())), None)
    if latest is None or latest["status"] != "Valid" or not latest["validation_link"]:
        raise NotFound(NO_LINK.format(noun=kind.noun))
    image = io.BytesIO()
    make_code(latest["validation_link"]).save(
        image, kind=extension, border=QUIET, scale=PIXELS, light="#fff"
    )
    return web.Response(body=image.getvalue(), content_type=PICTURES[extension])


def make_code(link: str) -> segno.QRCode:
    """Return a QR code that stays readable with 15 % of it damaged."""
    return segno.make_qr(link, error="m")
