"""The table of all operations: their routes, and their description.

The operations that all kinds of documents have are declared here, after those of a kind alone.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler

from service import json_codec, schema
from service.api import (
    adjustment_notes,
    code_tables,
    companies,
    consolidated_invoices,
    docs,
    documents,
    einvoice_requests,
    events,
    health,
    integrations,
    invoices,
    links,
    printing,
    submissions,
    validations,
    webhooks,
)
from service.api.openapi import describe
from service.api.operation import PUBLIC, Operation
from service.api.pagination import PAGE
from service.http import responses
from service.http.requests import read_body, reject_parameters

#: The modules with handlers, in the order of the description.
HANDLERS = (
    invoices,
    adjustment_notes,
    consolidated_invoices,
    submissions,
    validations,
    code_tables,
    companies,
    einvoice_requests,
    events,
    webhooks,
    integrations,
    health,
    docs,
)


for _kind in (invoices, adjustment_notes, consolidated_invoices):
    _documents = _kind.DOCUMENTS
    documents.declare_reading(_documents)
    if _kind is not consolidated_invoices:  # which cannot be updated
        documents.declare_update(_documents)
    documents.declare_deletion(_documents)
    submissions.declare(_documents)
    printing.declare(_documents)
    links.declare(_documents)
    if _kind is not adjustment_notes:
        adjustment_notes.declare_note_creation(_documents)

OPERATIONS: tuple[Operation, ...] = tuple(
    operation for module in HANDLERS for operation in module.GROUP.operations
)


@cache
def describe_api() -> str:
    """Return the OpenAPI description as JSON text."""
    return json_codec.dumps(describe(OPERATIONS, schema.ALL, schema.EXAMPLES))


def make_routes(operations: Sequence[Operation] = OPERATIONS) -> Iterator[web.RouteDef]:
    """Yield the routes of operations, with an {id} that excludes fixed words such as export-all.

    Another method of such a path is then a 405 instead of a search for a record of that name.
    """
    words = sorted({operation.path for operation in operations if "{" not in operation.path})
    for operation in operations:
        place = operation.path.removesuffix("{id}")
        taken = "|".join(
            re.escape(path.removeprefix(place)) for path in words if path.startswith(place)
        )
        # By default, aiohttp excludes braces from a part of a path.
        path = re.sub(r"{(\w+)}", r"{\1:[^/]+}", operation.path)
        if taken and place != operation.path:
            path = f"{place}{{id:(?!(?:{taken})$)[^/]+}}"
        yield web.RouteDef(operation.method, path, _make_handler(operation), {})


def _make_handler(operation: Operation) -> Handler:
    """Return the handler of an operation, which rejects query parameters that it does not have.

    The function at the declaration gets the request and, if the operation has one, the body. If it
    returns nothing, the response has the message of the operation.
    """
    # An operation with parameters has no body, and rejects other parameters together with bad ones.
    if operation.surface is PUBLIC or operation.query:
        return cast(Handler, operation.handler)
    # An export has no pages, so that parameters of pages change nothing.
    ignored = [parameter.name for parameter in PAGE] if operation.is_file else []
    return partial(_handle, operation, ignored)


async def _handle(
    operation: Operation, ignored: list[str], request: web.Request
) -> web.StreamResponse:
    body = [await read_body(request, operation.body)] if operation.body else []
    reject_parameters(request, ignored)
    response = await operation.handler(request, *body)
    if response is not None:
        return response
    if operation.response == "Message":  # Spec: Adjustment notes
        return responses.json_response({"message": operation.message})
    return responses.success_response(request, operation.message)
