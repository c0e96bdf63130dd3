"""The portal sandbox as an aiohttp application: routes and middleware. Portal: 1.3, Appendix B"""

import itertools
import logging
import socket
import sqlite3
import sys
from email.utils import formatdate

from aiohttp import web
from aiohttp.typedefs import Handler

from . import admin, documents, faults
from .answers import Refusal, answer, bad_argument, in_standard, not_found, refusal
from .controls import DATE_SHIFT, SANDBOX, Call, Sandbox
from .operations import OPERATIONS, Operation, admit
from .records import new_uuid
from .settings import Settings
from .submissions import too_large
from .validation import validate_due

#: Largest request body that is read. The portal's smaller limit is checked by the submission.
MAX_READ = 32 * 1024 * 1024
CORRELATION = web.RequestKey("correlation", str)
OPERATION = web.RequestKey("operation", str)
RATE_HEADERS = web.RequestKey("rate_headers", dict[str, str])
#: Numbers of the requests of this process.
REQUESTS = itertools.count(1)
#: Begins the ids of requests, such as `0HNXQ1C5T7K2A:00000025`. Portal: 1.3
PROCESS = f"0HN{new_uuid()[:10]}"

log = logging.getLogger(__name__)


def make_handler(operation: Operation) -> Handler:
    """Return a handler with counting, authentication, rate limits and injected errors."""

    async def operate(request: web.Request) -> web.StreamResponse:
        sandbox = request.app[SANDBOX]
        request[OPERATION] = operation.name
        sandbox.db.request_count(operation=operation.name, status="", now=sandbox.now())
        # Read the body first, so that a client that disconnects later changes nothing.
        call = Call(request, sandbox, await request.read())
        request[RATE_HEADERS] = admit(call, operation)

        async def process() -> web.Response:
            # Again, because reading the body or an injected delay may have taken long.
            await validate_due(sandbox)
            return answer(operation.handle(call), operation.status)

        return await faults.perform(call, operation.name, process)

    return operate


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Validate due documents, run the handler, and turn exceptions into the portal's responses."""
    sandbox = request.app[SANDBOX]
    request[CORRELATION] = f"{PROCESS}:{next(REQUESTS):08X}"
    try:
        await validate_due(sandbox)
        response = await handler(request)
    except faults.Dropped:
        count_response(request, "dropped")
        if request.transport:
            request.transport.close()
        return web.Response()  # is never written
    except ConnectionError:
        raise
    except Exception as error:
        refused = to_refusal(error, request)
        is_standard = sandbox.controls.error_dialect == "standard"
        body = in_standard(refused.body) if is_standard else refused.body
        response = answer(body, refused.status, refused.headers)
    count_response(request, str(response.status))
    return response


def count_response(request: web.Request, status: str) -> None:
    if operation := request.get(OPERATION):
        sandbox = request.app[SANDBOX]
        sandbox.db.request_count(operation=operation, status=status, now=sandbox.now())


def to_refusal(error: Exception, request: web.Request) -> Refusal:
    """Return the refusal for an exception. Unexpected exceptions are logged and become a 500."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, web.HTTPNotFound):
        return not_found("resource", request.path)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return too_large("The request is too large.")
    if isinstance(error, web.HTTPException):
        return refusal(error.status, "BadRequest", error.reason)
    if isinstance(error, UnicodeError):  # in any part of the request
        return bad_argument("request", "The request is not UTF-8.")
    log.error(
        "correlation=%s %s %s failed",
        request[CORRELATION],
        request.method,
        request.path,
        exc_info=error,
    )
    return refusal(500, "InternalServerError", "The sandbox failed; its log says why.")


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of every response. `Date` follows the sandbox clock, unless shifted."""
    response.headers["correlationId"] = request[CORRELATION]
    response.headers["Date"] = formatdate(
        request.app[SANDBOX].now() + request.get(DATE_SHIFT, 0), usegmt=True
    )
    response.headers.update(request.get(RATE_HEADERS, {}))


async def close(app: web.Application) -> None:
    app[SANDBOX].db.close()


def create_sandbox(settings: Settings) -> web.Application:
    """Return the application. Its state is in the file that the settings name."""
    app = web.Application(middlewares=[handle_errors], client_max_size=MAX_READ)
    app[SANDBOX] = Sandbox(settings)
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.path, make_handler(operation))
    app.router.add_get("/{uuid}/share/{long_id}", documents.show_page)
    app.add_routes(admin.routes)
    app.on_response_prepare.append(add_headers)
    app.on_cleanup.append(close)
    return app


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, and print the address once the socket listens.

    Exits with a message if the sandbox cannot start.
    """
    try:
        listener = socket.create_server((settings.host, settings.port))
        app = create_sandbox(settings)
    except (OSError, sqlite3.Error) as error:
        sys.exit(
            f"The sandbox cannot use {settings.host}:{settings.port} with {settings.state}: {error}"
        )
    host, port = listener.getsockname()[:2]  # the system chooses the port if the setting is 0
    line = f"Portal sandbox: http://{host}:{port} (state in {settings.state})"
    web.run_app(
        app,
        sock=listener,
        print=lambda _: print(line, flush=True),
        access_log=None,
        shutdown_timeout=1,
    )
