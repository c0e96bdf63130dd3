"""The queue of buyers who ask for an e-invoice, with Approve and Reject."""

from urllib.parse import urlencode

from aiohttp import web

from service.dashboard.documents import read_page
from service.dashboard.formats import TEXTS
from service.dashboard.operations import SHOWN, Failed, call, read, read_tagged
from service.dashboard.pages import page, redirect, render
from service.dashboard.sessions import WRITE
from service.http.forms import FORM

API = "/api/einvoice-requests"
CHOICES = {"approve": "Approve", "reject": "Reject", "reopen": "Pending"}
FILTERS = ("status", "query")


@page("GET", "/requests")
async def show_list(request: web.Request, message: str | None = None) -> web.Response:
    """Return a page of requests, newest first."""
    filters = {name: request.query[name] for name in FILTERS if request.query.get(name)}
    found = await read(request, API, {**filters, **read_page(request)})
    return await render(
        request,
        "requests.html",
        rows=found["data"],
        filters=filters,
        meta=found["meta"],
        message=message,
        choices=CHOICES,
    )


@page("POST", "/requests/{id:[0-9]+}/{choice:approve|reject|reopen}", right=WRITE)
async def decide(request: web.Request) -> web.Response:
    """Approve or reject a request as the page has shown it, or make it pending again."""
    choice = request.match_info["choice"]
    body = {"status": CHOICES[choice]}
    if choice == "reject" and (reason := request[FORM].get("reason", "").strip()):
        body["reason"] = reason
    path = f"{API}/{request.match_info['id']}"
    record, request[SHOWN] = await read_tagged(request, path)
    changed = TEXTS["errors"]["changed_meanwhile"]
    if request[FORM].get("shown", record["updated_at"]) != record["updated_at"]:
        return await show_list(request, changed)
    answer = await call(request, "PUT", path, body)
    if answer.is_success:  # The person stays on the page of the queue.
        if choice == "approve" and not (await read(request, path))["invoice_id"]:
            choice = "approve_alone"
        place = {name: request.query[name] for name in (*FILTERS, "page") if name in request.query}
        return redirect(f"/requests?{urlencode({**place, 'notice': choice})}")
    if answer.status == 404:
        raise Failed(answer)
    return await show_list(request, changed if answer.status == 412 else answer.message)
