"""Links to a document for people without an account. Only the digest of a token is stored.

Spec: Links
"""

from datetime import timedelta
from functools import partial

from aiohttp import web

from service.api.documents import Documents, list_of_document
from service.api.records import store_created
from service.db.statements import sql
from service.documents import states
from service.documents.kind import INVOICE, DocumentKind
from service.errors import Conflict, ValidationError, violation
from service.http import app_keys
from service.http.access import company_transaction
from service.http.requests import not_found, or_not_found, read_path_id
from service.http.tokens import digest_of, make_token
from service.json_types import JsonObject
from service.submission.locked_documents import lock_document

NOUN = "Link"
MOST = 100  # links of a document that can be used
VIEW, REQUEST = "view", "request"
#: Purpose -> the path of its pages and the time in which a link can be used.
PLACES = {VIEW: "/shared", REQUEST: "/receipt"}
LIFETIMES = {VIEW: timedelta(days=365), REQUEST: timedelta(days=90)}
CREATED = "Link created."
TOO_MANY = f"A document can have at most {MOST} links."
NOT_INVOICE = "purpose must be view: only an invoice can have a link for a buyer's request."
NOT_PENDING = "Only an invoice with a pending-finalize type can have a link for a buyer's request."


def declare(documents: Documents) -> None:
    kind, path = documents.kind, f"{documents.record_path}/links"
    pending = (Conflict(NOT_PENDING, code="not_pending"),) if kind is INVOICE else ()
    documents.operation(
        f"POST {path}",
        f"Create a link to {kind.with_article}",
        "DocumentLinkCreated",
        name=f"create_{kind.name}_link",
        message=CREATED,
        body="document_link_create",
        errors=(Conflict(TOO_MANY, code="too_many_links"), *pending),
        description="A visitor needs no account. The purpose `view` opens the printed "
        "page for 365 days. The purpose `request`, of an invoice that is not final, opens a form "
        "for the buyer for 90 days. The URL is returned only here.",
    )(partial(create_link, kind))
    documents.operation(
        f"GET {path}",
        f"List the links to {kind.with_article}",
        "DocumentLink[]",
        name=f"list_{kind.name}_links",
        description="Those that can be used, newest first, without their URLs.",
    )(partial(list_of_document, kind, sql.document_link_list))
    documents.operation(
        f"DELETE {path}/{{link_id}}",
        "Revoke a link",
        "Success",
        name=f"revoke_{kind.name}_link",
        message="Link revoked.",
        errors=(not_found(NOUN),),
        description="It stops working at once.",
    )(partial(revoke_link, kind))


async def create_link(kind: DocumentKind, request: web.Request, body: JsonObject) -> web.Response:
    """Create a link, whose URL only this response contains.

    Raises ValidationError and Conflict for a purpose that the document cannot have, and Conflict
    above MOST links.
    """
    document_id = read_path_id(request, kind.title)
    purpose, token = body.get("purpose", VIEW), make_token()
    async with company_transaction(request) as conn:
        row = await lock_document(conn, kind, document_id)
        _check_purpose(kind, row["type"], purpose)
        link = await sql.document_link_insert(
            conn,
            token_sha256=digest_of(token),
            purpose=purpose,
            lifetime=LIFETIMES[purpose],
            most=MOST,
            kind=kind.name,
            document_id=document_id,
        )
        if link is None:
            raise Conflict(TOO_MANY, code="too_many_links")
        url = f"{request.app[app_keys.CONFIG].public_url}{PLACES[purpose]}/{token}"
        return await store_created(request, conn, CREATED, {**link, "url": url}, "url")


def _check_purpose(kind: DocumentKind, document_type: str, purpose: str) -> None:
    if purpose != REQUEST:
        return
    if kind is not INVOICE:
        raise ValidationError([violation("/purpose", "enum", NOT_INVOICE)])
    if document_type not in states.PENDING_FINALIZE:
        raise Conflict(NOT_PENDING, code="not_pending")


async def revoke_link(kind: DocumentKind, request: web.Request) -> None:
    """Revoke a link of a document. Raises NotFound, also for a link that can no longer be used."""
    document_id = read_path_id(request, kind.title)
    link_id = read_path_id(request, NOUN, "link_id")
    async with company_transaction(request) as conn:
        await lock_document(conn, kind, document_id)
        revoked = await sql.document_link_revoke(conn, id=link_id, document_id=document_id)
        or_not_found(revoked, NOUN)
