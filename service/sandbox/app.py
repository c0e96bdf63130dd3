"""The portal sandbox as an aiohttp application: routes, and what surrounds every call. Portal: 1.3, Appendix B"""

import itertools
import logging
import secrets
import socket
import sqlite3
import string
import sys

from aiohttp import web

from . import admin, document_types, documents, faults, lists, page, quotas, submissions, taxpayers
from .answers import Refusal, answer, bad_argument, not_found
from .clock import http_date
from .controls import CALLER, DATE_SHIFT, SANDBOX, Sandbox
from .database import sql
from .login import authenticated, log_in, read_form
from .validation import validate_due

API = "/api/v1.0"
#: method, path, operation as faults and counts name it, handler
OPERATIONS = (
    ("POST", "/connect/token", "login", log_in),
    ("GET", f"{API}/taxpayer/validate/{{tin}}", "tin", taxpayers.validate_tin),
    ("GET", f"{API}/taxpayer/search/tin", "tin_search", taxpayers.search_tin),
    ("POST", f"{API}/documentsubmissions", "submit", submissions.submit),
    ("POST", f"{API}/documentsubmissions/", "submit", submissions.submit),
    ("GET", f"{API}/documentsubmissions/{{uid}}", "submission", submissions.get_submission),
    ("GET", f"{API}/documents/recent", "recent", lists.recent),
    ("GET", f"{API}/documents/search", "search", lists.search),
    ("GET", f"{API}/documents/{{uuid}}/details", "details", documents.get_details),
    ("GET", f"{API}/documents/{{uuid}}/raw", "raw", documents.get_raw),
    ("PUT", f"{API}/documents/state/{{uuid}}/state", "state", documents.change_state),
    ("GET", f"{API}/documenttypes", "types", document_types.list_types),
    ("GET", f"{API}/documenttypes/{{id}}", "types", document_types.get_type),
    (
        "GET",
        f"{API}/documenttypes/{{id}}/versions/{{version}}",
        "types",
        document_types.get_version,
    ),
)
#: largest body that is read at all; the portal's own limit is judged by the submission
MAX_READ = 32 * 1024 * 1024
CORRELATIONS = web.AppKey("correlations", object)
CORRELATION = web.RequestKey("correlation", str)
OPERATION = web.RequestKey("operation", str)
RATE_HEADERS = web.RequestKey("rate_headers", dict)
BASE32 = string.digits + "ABCDEFGHIJKLMNOPQRSTUV"

log = logging.getLogger(__name__)


def operation_of(name, handler):
    """The handler as clients meet it: counted, authenticated, within its quota, through the faults on order."""

    async def operate(request):
        sandbox = request.app[SANDBOX]

        async def process():
            await validate_due(sandbox)  # again: a slow body or a fault may have taken its time
            return await handler(request)

        request[OPERATION] = name
        sql.call_count(sandbox.db, operation=name, now=sandbox.now())
        # Whole before anything else, so that a client that hangs up later changes nothing
        await request.read()
        request[RATE_HEADERS] = await admit(request, sandbox, name)
        return await faults.perform(request, name, process)

    return operate


async def admit(request, sandbox, operation):
    """Rate headers of a call that may go on. Raises Refusal 401 and 429."""
    if operation == "login":
        name = "login_for_another" if "onbehalfof" in request.headers else "login"
        return quotas.take(sandbox, name, (await read_form(request)).get("client_id", ""))
    caller = request[CALLER] = authenticated(request)
    return quotas.take(sandbox, operation, caller["client_id"], caller["taxpayer"])


@web.middleware
async def surround(request, handler):
    """Brings the documents up to date, and turns whatever is raised into an answer of the portal's shape."""
    sandbox = request.app[SANDBOX]
    request[CORRELATION] = next(request.app[CORRELATIONS])
    try:
        await validate_due(sandbox)
        response = await handler(request)
    except faults.Dropped:
        count_answer(request, "dropped")
        return hang_up(request)
    except ConnectionError:
        raise
    except Exception as error:
        refusal = refusal_of(error, request)
        response = answer(
            refusal.body(sandbox.controls.error_dialect), refusal.status, refusal.headers
        )
    count_answer(request, str(response.status))
    return response


def count_answer(request, status):
    if operation := request.get(OPERATION):
        sql.answer_count(request.app[SANDBOX].db, operation=operation, status=status)


def hang_up(request):
    """Closes the connection; the response is never written."""
    if request.transport:
        request.transport.close()
    return web.Response()


#: exceptions of the framework -> what the portal says. A body that is no UTF-8 can come from
#: anywhere.
REFUSALS = (
    (web.HTTPNotFound, lambda request: not_found("resource", request.path)),
    (
        web.HTTPMethodNotAllowed,
        lambda request: Refusal(405, "BadRequest", "The method is not allowed."),
    ),
    (
        web.HTTPRequestEntityTooLarge,
        lambda request: submissions.too_large("The request is too large."),
    ),
    (UnicodeError, lambda request: bad_argument("request", "The request is not UTF-8.")),
)


def refusal_of(error, request):
    if isinstance(error, Refusal):
        return error
    for kind, refusal in REFUSALS:
        if isinstance(error, kind):
            return refusal(request)
    log.error(
        "correlation=%s %s %s failed",
        request[CORRELATION],
        request.method,
        request.path,
        exc_info=error,
    )
    return Refusal(500, "InternalServerError", "The sandbox failed; its log says why.")


async def stamp(request, response):
    """The headers of every answer. `Date` follows the sandbox clock, unless a fault shifts it."""
    response.headers["correlationId"] = request[CORRELATION]
    response.headers["Date"] = http_date(request.app[SANDBOX].now() + request.get(DATE_SHIFT, 0))
    for name, text in request.get(RATE_HEADERS, {}).items():
        response.headers[name] = text


def correlations():
    """`0HNXQ1C5T7K2A:00000025`, another prefix in each process. Portal: 1.3"""
    prefix = "0HN" + "".join(secrets.choice(BASE32) for _ in range(10))
    return (f"{prefix}:{number:08X}" for number in itertools.count(1))


async def close(app):
    app[SANDBOX].close()


def create_sandbox(settings):
    """The application; its state is in the file that the settings name."""
    app = web.Application(middlewares=[surround], client_max_size=MAX_READ)
    app[SANDBOX] = Sandbox(settings)
    app[CORRELATIONS] = correlations()
    for method, path, name, handler in OPERATIONS:
        app.router.add_route(method, path, operation_of(name, handler))
    app.router.add_get("/{uuid}/share/{long_id}", page.show_document)
    app.add_routes(admin.routes)
    app.on_response_prepare.append(stamp)
    app.on_cleanup.append(close)
    return app


def run(settings):
    """Serves until SIGTERM or SIGINT; prints its address once it listens. Exits with a line when it cannot start."""
    try:
        listener = socket.create_server((settings.host, settings.port))
        app = create_sandbox(settings)
    except (OSError, sqlite3.Error) as error:
        sys.exit(
            f"The sandbox cannot use {settings.host}:{settings.port} with {settings.state}: {error}"
        )
    host, port = listener.getsockname()[:2]  # the port that was found, when 0 was asked for
    line = f"Portal sandbox: http://{host}:{port} (state in {settings.state})"
    web.run_app(
        app,
        sock=listener,
        print=lambda _: print(line, flush=True),
        access_log=None,
        shutdown_timeout=1,
    )
