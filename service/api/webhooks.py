"""Webhooks: the endpoints of a company, their secrets, and the log of what was delivered to them."""

from aiohttp import web

from service import json_codec
from service.api import pagination
from service.db.encryption import WEBHOOK_SECRET, MissingSecretKey
from service.db.statements import sql
from service.errors import Conflict, ValidationError, violation
from service.http import app_keys, responses
from service.http.idempotency import store_response, store_response_without
from service.http.requests import check_if_match, or_not_found, path_id, read_body
from service.webhooks import signature
from service.webhooks.url_policy import url_violation

routes = web.RouteTableDef()

NOUN = "Webhook"
DELIVERY = "Delivery"
MOST = 20  # endpoints of one company
NO_SECRET_KEY = "The service cannot keep a secret: its operator has set no SECRET_KEY."
NEW = {"description": "", "types": [], "enabled": True}  # what a body need not say
FILTERS = {"status": pagination.one_of("status", ("Pending", "Delivered", "Failed"))}


@routes.post("/api/webhooks")
async def create_webhook(request):
    """Store an endpoint for future events. Only this response shows its secret.

    Raises Conflict when the company has the most endpoints allowed, and when the service has no SECRET_KEY.
    """
    body, _ = await read_body(request, "webhook_create")
    _check_url(request, body)
    company, secret = request[app_keys.COMPANY], signature.new_secret()
    sealed = _sealed(request, secret)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        await sql.webhook_limit_lock(conn, company_id=company)
        id = await sql.webhook_insert(
            conn, company_id=company, sealed_secret=sealed, most=MOST, **{**NEW, **body}
        )
        if id is None:
            raise Conflict(f"A company has at most {MOST} webhooks.")
        data = {"id": id, "secret": signature.shown(secret)}
        answer = responses.json_response(
            {"success": True, "message": "Webhook created.", "data": data}, 201
        )
        await store_response_without(request, conn, answer, "secret")
    return answer


@routes.get("/api/webhooks")
async def list_webhooks(request):
    company = request[app_keys.COMPANY]
    page = pagination.read_page(request, {}, (pagination.NEWEST_FIRST,))
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = await sql.webhook_page(
            conn, company_id=company, per_page=page.per_page, offset=page.offset
        )
    return _listed(page, row)


@routes.get("/api/webhooks/{id}")
async def get_webhook(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(
            request, or_not_found(await sql.webhook_get(conn, company_id=company, id=id), NOUN)
        )


@routes.put("/api/webhooks/{id}")
async def update_webhook(request):
    """Merge the sent members. An endpoint that is enabled again gets what was due, and what happens from now on."""
    body, _ = await read_body(request, "webhook_update")
    _check_url(request, body)
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(await sql.webhook_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.webhook_get, company_id=company, id=id)
        await sql.webhook_update(conn, company_id=company, id=id, **{**row, **body})
    return responses.json_response({"success": True, "message": "Webhook updated."})


@routes.delete("/api/webhooks/{id}")
async def delete_webhook(request):
    """Delete an endpoint and its log. The events stay."""
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        or_not_found(await sql.webhook_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.webhook_get, company_id=company, id=id)
        await sql.webhook_delete(conn, company_id=company, id=id)
    return responses.json_response({"success": True, "message": "Webhook deleted."})


@routes.post("/api/webhooks/{id}/rotate-secret")
async def rotate_secret(request):
    """A new secret, shown in this answer alone. The former one signs too for a while."""
    await read_body(request, "webhook_action")
    company, id, secret = request[app_keys.COMPANY], path_id(request, NOUN), signature.new_secret()
    overlap = request.app[app_keys.CONFIG].webhook_rotation
    async with request.app[app_keys.DATABASE].company(company) as conn:
        or_not_found(await sql.webhook_lock(conn, company_id=company, id=id), NOUN)
        sealed = _sealed(request, secret)
        until = await sql.webhook_secret_rotate(
            conn, company_id=company, id=id, sealed_secret=sealed, overlap=overlap
        )
        data = {"secret": signature.shown(secret), "previous_valid_until": until}
        answer = responses.json_response(
            {"success": True, "message": "Secret rotated.", "data": data}
        )
        await store_response_without(request, conn, answer, "secret")
    return answer


@routes.get("/api/webhooks/{id}/deliveries")
async def list_deliveries(request):
    """The log of an endpoint, newest first."""
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    page = pagination.read_page(request, FILTERS, (pagination.NEWEST_FIRST,))
    window = {"per_page": page.per_page, "offset": page.offset, **page.filters}
    async with request.app[app_keys.DATABASE].searching(company) as conn:
        or_not_found(await sql.webhook_exists(conn, company_id=company, id=id), NOUN)
        row = await sql.webhook_delivery_page(conn, company_id=company, endpoint_id=id, **window)
    return _listed(page, row)


@routes.post("/api/webhooks/{id}/deliveries/{delivery_id}/redeliver")
async def redeliver(request):
    """Make a delivery due at once, whatever became of it. Raises Conflict while its endpoint is disabled."""
    await read_body(request, "webhook_action")
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    delivery = path_id(request, DELIVERY, "delivery_id")
    async with request.app[app_keys.DATABASE].company(company) as conn:
        endpoint = or_not_found(await sql.webhook_lock(conn, company_id=company, id=id), NOUN)
        or_not_found(
            await sql.webhook_delivery_again(conn, company_id=company, endpoint_id=id, id=delivery),
            DELIVERY,
        )
        if not endpoint["enabled"]:  # after the 404s; raising undoes the statement
            raise Conflict("The webhook is disabled; enable it first.")
        answer = responses.json_response(
            {"success": True, "message": "The event will be delivered again."}
        )
        await store_response(request, conn, answer)
    return answer


def _sealed(request, secret):
    """The secret as it is stored. Raises Conflict where the service has no SECRET_KEY."""
    try:
        return request.app[app_keys.SUBMISSION_CONTEXT].signers.vault.seal(
            secret, request[app_keys.COMPANY], WEBHOOK_SECRET
        )
    except MissingSecretKey:
        raise Conflict(NO_SECRET_KEY) from None


def _check_url(request, body):
    allow_internal = request.app[app_keys.CONFIG].webhook_allow_internal
    if "url" in body and (wording := url_violation(body["url"], allow_internal)):
        raise ValidationError([violation("/url", "address", wording)])


def _listed(page, row):
    return responses.json_text_response(
        f'{{"meta":{json_codec.dumps(page.meta(row["total"]))},"data":{row["data"]}}}'
    )
