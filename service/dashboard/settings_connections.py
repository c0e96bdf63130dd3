"""Settings of what a company is connected with: webhooks, its certificate, and the portal.

The operator's credentials are on no page, and no page contains a secret that was entered.
"""

from itertools import groupby

from aiohttp import web

from service import schema
from service.api.companies import CERTIFICATE_PATH, CREDENTIALS_PATH
from service.dashboard import pages
from service.dashboard.documents import read_page
from service.dashboard.operations import read, read_company, read_if_any, read_tagged
from service.dashboard.repetition import take_secrets
from service.dashboard.settings import Action, FormRefusal, declare, operation
from service.errors import ApiError, UnknownTin
from service.http import app_keys
from service.http.forms import FORM, NO_FORM, FormFields
from service.json_types import JsonMapping, JsonObject
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.operator.tin_checks import TIN_CHECKS, make_own_question

WEBHOOKS, WEBHOOK = "/settings/webhooks", "/settings/webhooks/{id}"
WEBHOOKS_API, WEBHOOK_API = "/api/webhooks", "/api/webhooks/{id}"
DELIVERIES = "/deliveries/{delivery_id}/redeliver"
ROTATE = f"{WEBHOOK_API}/rotate-secret"
MOST = 100  # endpoints on the page; the API allows fewer
#: (subject, its event types), such as ("invoice", ("invoice.created", ...)).
GROUPS = tuple(
    (subject, tuple(types))
    for subject, types in groupby(
        schema.get_values("event_type"), key=lambda event_type: event_type.partition(".")[0]
    )
)
TEXTS = pages.TEXTS["settings"]["portal"]


async def _read_webhooks(request: web.Request) -> JsonMapping:
    """Return the endpoints, and once the secret of a new one."""
    return {
        "webhooks": (await read(request, WEBHOOKS_API, {"per_page": MOST}))["data"],
        "created": await take_secrets(request, WEBHOOKS_API),
        "entries": _read_entries(request.get(FORM, NO_FORM)),
        "groups": GROUPS,
    }


async def _read_webhook(request: web.Request) -> JsonMapping:
    """Return an endpoint with its log of deliveries, and once the new secret."""
    ids, form = request.match_info, request.get(FORM, NO_FORM)
    place, api = WEBHOOK.format(**ids), WEBHOOK_API.format(**ids)
    webhook, etag = await read_tagged(request, api)
    log = await read(request, f"{api}/deliveries", read_page(request))
    return {
        "webhook": webhook,
        "etag": etag,
        "place": place,
        "created": await take_secrets(request, ROTATE.format(**ids)),
        "entries": _read_entries(form) if "url" in form else webhook,
        "groups": GROUPS,
        "deliveries": log["data"],
        "meta": log["meta"],
    }


def _read_entries(form: FormFields) -> JsonObject:
    """Return the body of an endpoint. No event types means all."""
    return {
        "url": form.get("url", "").strip(),
        "types": form.getall("types", []),
        "include_record": "include_record" in form,
        "ordered": "ordered" in form,
    }


async def _read_certificate(request: web.Request) -> JsonMapping:
    return {"certificate": await read_if_any(request, CERTIFICATE_PATH)}


def _read_new_certificate(form: FormFields) -> dict[str, str]:
    body = {name: form.get(name, "") for name in ("certificate", "key")}
    password = form.get("password", "")
    return {**body, "password": password} if password else body


async def _read_portal(request: web.Request) -> JsonMapping:
    config = request.app[app_keys.CONFIG]
    return {
        "company": await read_company(request),
        "credentials": await read_if_any(request, CREDENTIALS_PATH),
        "address": config.portal_api_base,
        "is_live": config.has_live_portal,
        "is_intermediary": config.portal_intermediary,
        "version": config.portal_document_version,
        "unreachable_since": request.app[SUBMISSION_CONTEXT].shared_portal.unreachable_since,
    }


async def _test_portal(request: web.Request) -> FormRefusal | None:
    """Ask the portal for the company's own TIN, signed in as for its documents."""
    company = await read_company(request)
    question = make_own_question(request[app_keys.COMPANY], company)
    try:
        await request.app[TIN_CHECKS].confirm(question, fresh=True)
        return None
    except UnknownTin:
        reason = TEXTS["unknown_tin"].format(
            tin=company["tin_code"],
            kind=company["registration_type"],
            number=company["registration_number"],
        )
    except ApiError as error:
        reason = str(error)
    return FormRefusal(message=f"{TEXTS['fails']} {reason}")


def _read_credentials(form: FormFields) -> dict[str, str]:
    return {name: form.get(name, "").strip() for name in ("client_id", "client_secret")}


declare(
    WEBHOOKS,
    "settings_webhooks.html",
    _read_webhooks,
    Action("", operation("POST", WEBHOOKS_API, _read_entries)),
)
declare(
    WEBHOOK,
    "settings_webhook.html",
    _read_webhook,
    Action("", operation("PUT", WEBHOOK_API, _read_entries), "saved"),
    Action("/enable", operation("PUT", WEBHOOK_API, lambda _: {"enabled": True}), "saved"),
    Action("/disable", operation("PUT", WEBHOOK_API, lambda _: {"enabled": False}), "saved"),
    Action("/rotate", operation("POST", ROTATE)),
    Action("/delete", operation("DELETE", WEBHOOK_API), "webhook_deleted", WEBHOOKS),
    Action(
        DELIVERIES.replace("delivery_id", "delivery_id:[0-9]+"),
        operation("POST", WEBHOOK_API + DELIVERIES),
        "redelivered",
        needs_password=False,
    ),
)
declare(
    "/settings/certificate",
    "settings_certificate.html",
    _read_certificate,
    Action("", operation("PUT", CERTIFICATE_PATH, _read_new_certificate), "certificate_stored"),
    Action("/remove", operation("DELETE", CERTIFICATE_PATH), "certificate_removed"),
)
declare(
    "/settings/portal",
    "settings_portal.html",
    _read_portal,
    Action("", _test_portal, "portal_works", needs_password=False),
    Action(
        "/credentials",
        operation("PUT", CREDENTIALS_PATH, _read_credentials),
        "portal_credentials_stored",
    ),
    Action(
        "/credentials/remove",
        operation("DELETE", CREDENTIALS_PATH),
        "portal_credentials_removed",
    ),
)
