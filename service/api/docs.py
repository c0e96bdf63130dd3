"""The OpenAPI description, and a page that renders it without resources of other sites."""

from functools import cache
from pathlib import Path

from aiohttp import web

from service import json_codec, schema
from service.api.openapi import describe
from service.api.operations import OPERATIONS
from service.http import responses

routes = web.RouteTableDef()

PAGE = Path(__file__).with_name("docs_page")
#: The page loads only its own script and style sheet, nothing inline, and cannot be framed.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


@routes.get("/api/openapi.json")
async def get_description(request: web.Request) -> web.Response:
    """Return the OpenAPI description."""
    return responses.record_response(request, _description())


@routes.get("/api/docs")
async def get_page(request: web.Request) -> web.Response:
    """Return the page that renders the description."""
    return _file("docs.html", "text/html")


@routes.get("/api/docs/docs.js")
async def get_script(request: web.Request) -> web.Response:
    """Return the script of the page."""
    return _file("docs.js", "text/javascript")


@routes.get("/api/docs/docs.css")
async def get_style_sheet(request: web.Request) -> web.Response:
    """Return the style sheet of the page."""
    return _file("docs.css", "text/css")


@cache
def _description() -> str:
    return json_codec.dumps(describe(OPERATIONS, schema.ALL, schema.EXAMPLES))


def _file(name: str, content_type: str) -> web.Response:
    return web.Response(
        text=_text(name), content_type=content_type, charset="utf-8", headers=PAGE_HEADERS
    )


@cache
def _text(name: str) -> str:
    return (PAGE / name).read_text("utf-8")
