"""Webhooks: the endpoints of a company, their secrets, and the log of deliveries."""

from aiohttp import web

from service.api import filters, pagination
from service.api.operation import Group
from service.api.records import lock_record, page_response, store_created
from service.db.encryption import WEBHOOK_SECRET, MissingSecretKey
from service.db.statements import sql
from service.errors import Conflict, ValidationError, violation
from service.http import app_keys, responses
from service.http.access import company_transaction, read_own
from service.http.idempotency import store_response, store_response_without
from service.http.requests import not_found, or_not_found, read_path_id
from service.json_types import JsonObject
from service.submission.context import SUBMISSION_CONTEXT
from service.webhooks import signature
from service.webhooks.addresses import url_violation

NOUN = "Webhook"
DELIVERY = "Delivery"
operation = GROUP = Group("Webhooks", NOUN)

MOST = 20  # endpoints of a company
TOO_MANY = f"A company can have at most {MOST} webhooks."
DISABLED = "The webhook is disabled; enable it first."
CREATED = "Webhook created."
ROTATED = "Secret rotated."
REDELIVERED = "The event will be delivered again."
DEFAULTS: JsonObject = {
    "description": "",
    "types": [],
    "enabled": True,
    "include_record": False,
    "ordered": False,
}
FILTERS = (filters.one_of("status", ("Pending", "Delivered", "Failed")),)


@operation(
    "GET /api/webhooks",
    "List webhooks",
    "WebhookList",
    query=pagination.PAGE,
    description="Newest first.",
)
async def list_webhooks(request: web.Request) -> web.Response:
    page = pagination.read_page(request)
    row = await read_own(request, sql.webhook_page, per_page=page.per_page, offset=page.offset)
    return page_response(page, row)


@operation(
    "POST /api/webhooks",
    "Create a webhook",
    "WebhookCreated",
    message=CREATED,
    body="webhook_create",
    errors=(Conflict(TOO_MANY, code="too_many_webhooks"), MissingSecretKey(WEBHOOK_SECRET)),
    description="Deliveries are signed as Standard Webhooks. The secret is returned only here.",
)
async def create_webhook(request: web.Request, body: JsonObject) -> web.Response:
    _reject_url(request, body)
    secret = signature.new_secret()
    sealed = _seal(request, secret)
    async with company_transaction(request) as conn:
        await sql.company_lock(conn)
        webhook_id = await sql.webhook_insert(
            conn, sealed_secret=sealed, most=MOST, **{**DEFAULTS, **body}
        )
        if webhook_id is None:
            raise Conflict(TOO_MANY, code="too_many_webhooks")
        data = {"id": webhook_id, "secret": signature.shown(secret)}
        return await store_created(request, conn, CREATED, data, "secret")


@operation(
    "GET /api/webhooks/{id}",
    "Get a webhook",
    "Webhook",
    description="Without its secret. The ETag does not depend on its counters.",
    is_record=True,
)
async def get_webhook(request: web.Request) -> web.Response:
    row = or_not_found(
        await read_own(request, sql.webhook_whole, id=read_path_id(request, NOUN)), NOUN
    )
    return responses.record_response(request, row["record"], row["tagged"])


@operation(
    "PUT /api/webhooks/{id}",
    "Update a webhook",
    "Success",
    message="Webhook updated.",
    body="webhook_update",
    description="Sent members replace stored ones. A webhook that is enabled again receives "
    "pending deliveries and all future events.",
)
async def update_webhook(request: web.Request, body: JsonObject) -> None:
    _reject_url(request, body)
    webhook_id = read_path_id(request, NOUN)
    async with company_transaction(request) as conn:
        row = await lock_record(request, conn, "webhook", NOUN, webhook_id)
        await sql.webhook_update(conn, id=webhook_id, **{**row, **body})


@operation(
    "DELETE /api/webhooks/{id}",
    "Delete a webhook",
    "Success",
    message="Webhook deleted.",
    description="Deletes its deliveries too. The events remain in the feed.",
)
async def delete_webhook(request: web.Request) -> None:
    webhook_id = read_path_id(request, NOUN)
    async with company_transaction(request) as conn:
        await lock_record(request, conn, "webhook", NOUN, webhook_id)
        await sql.webhook_delete(conn, id=webhook_id)


@operation(
    "POST /api/webhooks/{id}/rotate-secret",
    "Replace the secret of a webhook",
    "WebhookSecret",
    message=ROTATED,
    body="webhook_action",
    errors=(MissingSecretKey(WEBHOOK_SECRET),),
    description="The new secret is returned only here. Deliveries are signed with both secrets "
    "until `previous_valid_until`.",
)
async def rotate_webhook_secret(request: web.Request, body: JsonObject) -> web.Response:
    webhook_id = read_path_id(request, NOUN)
    secret, overlap = signature.new_secret(), request.app[app_keys.CONFIG].webhook_rotation
    async with company_transaction(request) as conn:
        or_not_found(await sql.webhook_lock(conn, id=webhook_id), NOUN)
        sealed = _seal(request, secret)
        until = await sql.webhook_secret_rotate(
            conn, id=webhook_id, sealed_secret=sealed, overlap=overlap
        )
        data = {"secret": signature.shown(secret), "previous_valid_until": until}
        response = responses.success_response(request, ROTATED, data=data)
        await store_response_without(request, conn, response, "secret")
    return response


@operation(
    "GET /api/webhooks/{id}/deliveries",
    "List the deliveries of a webhook",
    "WebhookDeliveryList",
    query=(*pagination.PAGE, *FILTERS),
    description="Newest first.",
)
async def list_webhook_deliveries(request: web.Request) -> web.Response:
    page = pagination.read_page(request, FILTERS)
    webhook_id = read_path_id(request, NOUN)
    window = {"per_page": page.per_page, "offset": page.offset, **page.filters}
    row = await read_own(request, sql.webhook_delivery_page, endpoint_id=webhook_id, **window)
    return page_response(page, or_not_found(row, NOUN))


@operation(
    "POST /api/webhooks/{id}/deliveries/{delivery_id}/redeliver",
    "Deliver an event again",
    "Success",
    message=REDELIVERED,
    body="webhook_action",
    errors=(not_found(DELIVERY), Conflict(DISABLED, code="webhook_disabled")),
    description="Makes the delivery due at once, in any status. The webhook must be enabled.",
)
async def redeliver_event(request: web.Request, body: JsonObject) -> web.Response:
    webhook_id = read_path_id(request, NOUN)
    delivery_id = read_path_id(request, DELIVERY, "delivery_id")
    async with company_transaction(request) as conn:
        webhook = or_not_found(await sql.webhook_lock(conn, id=webhook_id), NOUN)
        delivery = await sql.webhook_delivery_again(conn, endpoint_id=webhook_id, id=delivery_id)
        or_not_found(delivery, DELIVERY)
        if not webhook["enabled"]:  # after the 404s; raising rolls the update back
            raise Conflict(DISABLED, code="webhook_disabled")
        response = responses.success_response(request, REDELIVERED)
        await store_response(request, conn, response)
    return response


def _seal(request: web.Request, secret: bytes) -> bytes:
    vault = request.app[SUBMISSION_CONTEXT].signers.vault
    return vault.seal(secret, request[app_keys.COMPANY], WEBHOOK_SECRET)


def _reject_url(request: web.Request, body: JsonObject) -> None:
    """Raise ValidationError for a URL to which the service must not send requests."""
    allow_internal = request.app[app_keys.CONFIG].webhook_allow_internal
    if "url" in body and (message := url_violation(body["url"], allow_internal)):
        raise ValidationError([violation("/url", "address", message)])
