"""The OpenAPI description, and a page that renders it without resources of other sites."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web

from service.api.operation import Group
from service.http import responses

operation = GROUP = Group("Service")

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
    "GET /api/openapi.json",
    "Get this description",
    "Description",
    description="OpenAPI 3.1, for client generators and other tools.",
    is_record=True,
)
async def get_description(request: web.Request) -> web.Response:
    described = responses.record_response(request, request.app[DESCRIBE]())
    return responses.compress_fixed(request, described)


async def _get_file(content: bytes, content_type: str, request: web.Request) -> web.Response:
    response = web.Response(
        body=content, content_type=content_type, charset="utf-8", headers=PAGE_HEADERS
    )
    return responses.compress_fixed(request, response)


for place, file, content_type, noun in (
    ("/api/docs", "docs.html", "text/html", "page"),
    ("/api/docs/docs.js", "docs.js", "text/javascript", "script"),
    ("/api/docs/docs.css", "docs.css", "text/css", "style_sheet"),
):
    operation(
        f"GET {place}",
        f"Get the {noun.replace('_', ' ')} that renders this description",
        content_type,
        description="It loads nothing from other sites.",
        name=f"get_docs_{noun}",
    )(partial(_get_file, (PAGE / file).read_bytes(), content_type))
