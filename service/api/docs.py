"""The API's own description, and the page that shows it. The page reaches nothing outside the service."""

from functools import cache
from pathlib import Path

from aiohttp import web

from service import json_codec, schema
from service.api.openapi import describe
from service.api.operations import OPERATIONS
from service.http import responses

routes = web.RouteTableDef()

PAGE = Path(__file__).with_name("docs_page")
#: The page runs its own program and shows its own looks: nothing inline, nothing from elsewhere, in
#: no frame.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


@routes.get("/api/openapi.json")
async def get_description(request):
    return responses.record_response(request, _described())


@routes.get("/api/docs")
async def get_page(request):
    return _file("docs.html", "text/html")


@routes.get("/api/docs/docs.js")
async def get_program(request):
    return _file("docs.js", "text/javascript")


@routes.get("/api/docs/docs.css")
async def get_looks(request):
    return _file("docs.css", "text/css")


@cache
def _described():
    return json_codec.dumps(describe(OPERATIONS, schema.ALL, schema.EXAMPLES))


def _file(name, content_type):
    return web.Response(
        text=_text(name), content_type=content_type, charset="utf-8", headers=PAGE_HEADERS
    )


@cache
def _text(name):
    return (PAGE / name).read_text("utf-8")
