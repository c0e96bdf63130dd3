"""Settings of webhooks: the endpoints, their secrets, and the log of deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import groupby

from aiohttp import web

from service.api.events import TYPES
from service.dashboard import pages
from service.dashboard.documents import PER_PAGE, make_meta, read_page_number
from service.dashboard.operations import Answer, Failed, call, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.repetition import create, show_secrets, take_secrets
from service.dashboard.sessions import ADMINISTER
from service.http.forms import FORM

PAGES: list[Page] = []
page = partial(pages.page, PAGES, right=ADMINISTER)

API = "/api/webhooks"
ROTATE = "rotate-secret"
PLACE = "/settings/webhooks"
RECORD = f"{PLACE}/{{id:[0-9]+}}"
RETURN_TO = f"{PLACE}/{{id}}"
MOST = 100  # endpoints on the page; the API allows fewer
#: Fields of the form, at which violations are shown.
FIELDS = ("url", "types")
#: (subject, its event types), such as ("invoice", ("invoice.created", ...)).
GROUPS = tuple(
    (subject, tuple(types))
    for subject, types in groupby(TYPES, key=lambda event_type: event_type.partition(".")[0])
)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of the form of an endpoint. No event types means all."""

    url: str = ""
    types: Sequence[str] = ()
    include_record: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of an operation: violations by field, and the message of any other error."""

    status: int = 200
    wrong: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None


EMPTY, NO_REFUSAL = Entries(), Refusal()


@page("GET", PLACE)
async def show_webhooks(
    request: web.Request, entries: Entries = EMPTY, refusal: Refusal = NO_REFUSAL
) -> web.Response:
    """Return the endpoints and the form of a new one, with the secret of the last one once."""
    found = await read(request, API, {"per_page": MOST})
    return render(
        request,
        "settings_webhooks.html",
        refusal.status,
        webhooks=found["data"],
        created=await take_secrets(request, API),
        entries=entries,
        refusal=refusal,
        groups=GROUPS,
    )


@page("POST", PLACE, return_to=PLACE)
async def create_webhook(request: web.Request) -> web.Response:
    """Create an endpoint, and go to the page that shows its secret once."""
    entries = _read_entries(request)
    answer = await create(request, API, asdict(entries))
    if not answer.is_success:
        return await show_webhooks(request, entries, _read_refusal(answer))
    return show_secrets(request, PLACE)


@page("GET", RECORD)
async def show_webhook(
    request: web.Request, entries: Entries | None = None, refusal: Refusal = NO_REFUSAL
) -> web.Response:
    """Return an endpoint with its log of deliveries, and once the new secret."""
    webhook = await read(request, _api_path(request))
    number = read_page_number(request)
    window = {"page": number, "per_page": PER_PAGE}
    log = await read(request, f"{_api_path(request)}/deliveries", window)
    place = _page_path(request)
    return render(
        request,
        "settings_webhook.html",
        refusal.status,
        webhook=webhook,
        place=place,
        created=await take_secrets(request, f"{_api_path(request)}/{ROTATE}"),
        entries=entries or Entries(**{each.name: webhook[each.name] for each in fields(Entries)}),
        refusal=refusal,
        groups=GROUPS,
        deliveries=log["data"],
        number=number,
        meta=make_meta(place, {}, number, log["meta"]["total"]),
    )


@page("POST", RECORD, return_to=RETURN_TO)
async def save_webhook(request: web.Request) -> web.Response:
    """Store the entries of the form, or show the violations at their fields."""
    entries = _read_entries(request)
    answer = await call(request, "PUT", _api_path(request), asdict(entries))
    if not answer.is_success:
        return await show_webhook(request, entries=entries, refusal=_read_refusal(answer))
    return redirect(f"{_page_path(request)}?notice=saved")


@page("POST", f"{RECORD}/{{action:enable|disable}}", return_to=RETURN_TO)
async def set_state(request: web.Request) -> web.Response:
    """Enable or disable an endpoint."""
    body = {"enabled": request.match_info["action"] == "enable"}
    answer = await call(request, "PUT", _api_path(request), body)
    if not answer.is_success:
        return await show_webhook(request, refusal=_read_refusal(answer))
    return redirect(f"{_page_path(request)}?notice=saved")


@page("POST", f"{RECORD}/rotate", return_to=RETURN_TO)
async def rotate_secret(request: web.Request) -> web.Response:
    """Replace the secret of an endpoint, and go to the page that shows the new one once."""
    answer = await create(request, f"{_api_path(request)}/{ROTATE}", {})
    if not answer.is_success:
        return await show_webhook(request, refusal=_read_refusal(answer))
    return show_secrets(request, _page_path(request))


@page("POST", f"{RECORD}/delete", return_to=RETURN_TO)
async def delete_webhook(request: web.Request) -> web.Response:
    """Delete an endpoint with its log."""
    answer = await call(request, "DELETE", _api_path(request))
    if not answer.is_success:
        return await show_webhook(request, refusal=_read_refusal(answer))
    return redirect(f"{PLACE}?notice=webhook_deleted")


@page("POST", f"{RECORD}/deliveries/{{delivery_id:[0-9]+}}/redeliver")
async def redeliver(request: web.Request) -> web.Response:
    """Deliver an event again, and show the same page of the log."""
    place = f"{_api_path(request)}/deliveries/{request.match_info['delivery_id']}/redeliver"
    answer = await create(request, place, {})
    if not answer.is_success:
        return await show_webhook(request, refusal=_read_refusal(answer))
    return redirect(f"{_page_path(request)}?page={read_page_number(request)}&notice=redelivered")


def _read_entries(request: web.Request) -> Entries:
    form = request[FORM]
    return Entries(
        form.get("url", "").strip(),
        form.getall("types", []),
        "include_record" in form,
        "ordered" in form,
    )


def _read_refusal(answer: Answer) -> Refusal:
    """Return the error of an operation. Raises Failed if the endpoint or delivery is unknown."""
    if answer.status == 404:
        raise Failed(answer)
    wrong: dict[str, str] = {}
    for path, message in answer.violations.items():
        wrong.setdefault(path.split("/")[1] if path else "", message)
    is_at_fields = bool(wrong) and wrong.keys() <= set(FIELDS)
    return Refusal(answer.status, wrong, None if is_at_fields else answer.message)


def _api_path(request: web.Request) -> str:
    return f"{API}/{request.match_info['id']}"


def _page_path(request: web.Request) -> str:
    return f"{PLACE}/{request.match_info['id']}"
