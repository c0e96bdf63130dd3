"""The OpenAPI description, and a page that renders it without resources of other sites."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from aiohttp import web

from service.api.operation import Operation
from service.http import responses

operations: list[Operation] = []
operation = partial(Operation, operations, "Service")

#: Returns the OpenAPI description as JSON text.
DESCRIBE: web.AppKey[Callable[[], str]] = web.AppKey("describe")

PAGE = Path(__file__).with_name("docs_page")
#: The page loads only its own script and style sheet, nothing inline, and cannot be framed.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


@operation(
    "GET",
    "/api/openapi.json",
    "Get this description",
    "Description",
    description="OpenAPI 3.1, for client generators and other tools.",
    is_record=True,
)
async def get_description(request: web.Request) -> web.Response:
    """Return the OpenAPI description."""
    described = responses.record_response(request, request.app[DESCRIBE]())
    return responses.compress_fixed(request, described)


@operation(
    "GET",
    "/api/docs",
    "Get a page that renders this description",
    "text/html",
    description="It loads nothing from other sites.",
)
async def get_docs_page(request: web.Request) -> web.Response:
    """Return the page that renders the description."""
    return _file(request, "docs.html", "text/html")


@operation(
    "GET",
    "/api/docs/docs.js",
    "Get the script of the page",
    "text/javascript",
    description="Part of `/api/docs`.",
)
async def get_docs_script(request: web.Request) -> web.Response:
    """Return the script of the page."""
    return _file(request, "docs.js", "text/javascript")


@operation(
    "GET",
    "/api/docs/docs.css",
    "Get the style sheet of the page",
    "text/css",
    description="Part of `/api/docs`.",
)
async def get_docs_style_sheet(request: web.Request) -> web.Response:
    """Return the style sheet of the page."""
    return _file(request, "docs.css", "text/css")


def _file(request: web.Request, name: str, content_type: str) -> web.Response:
    response = web.Response(
        body=_read(name), content_type=content_type, charset="utf-8", headers=PAGE_HEADERS
    )
    return responses.compress_fixed(request, response)


@cache
def _read(name: str) -> bytes:
    return (PAGE / name).read_bytes()
