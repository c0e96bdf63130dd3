"""The OpenAPI 3.1 description, derived from the operations and the request schemas.

Everything that many operations share is added here by rule: errors of authentication and of the
body, headers by method. Pure functions.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

from service import json_codec
from service.api import openapi_webhooks
from service.api.components import Components, component_name, refer_to
from service.api.operation import (
    INTEGRATION,
    PUBLIC,
    VALIDATION,
    ErrorResponse,
    Operation,
    QueryParameter,
)
from service.api.pagination import PER_PAGE
from service.db.connections import UNAVAILABLE
from service.errors import (
    ApiError,
    BadRequest,
    ClaimLost,
    NotFound,
    PreconditionFailed,
    RequestTimeout,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
    ValidationError,
    violation,
)
from service.http import api_keys, requests
from service.http.error_responses import INTERNAL
from service.http.idempotency import INVALID_KEY, key_reused
from service.http.middleware import SLOW_DOWN
from service.http.server import NOT_HTTP
from service.json_codec import INVALID_JSON, MOST_STORED_BYTES
from service.json_types import JsonObject
from service.schema import describe_unknown
from service.version import VERSION

#: The parts of the description that are equal for all operations.
FIXED: JsonObject = json_codec.load_data(__file__)
JSON = "application/json"

_TEXT = f"""\
Creates invoices and adjustment notes, submits them to the tax authority's portal, cancels them and
reports their status.

**Authentication.** A company's key is sent in `X-API-Key` and gives access to the data of that
company only. The integration surface has its own keys, sent in `X-Portal-Key`.

**Bodies** are JSON in UTF-8. Numbers are decimals and are returned as they were sent. Date-times
without an offset are UTC; responses contain UTC. Unknown members are rejected at the top level;
within parties, addresses and line items they are kept. A stored document (invoice, note, e-invoice
request) has at most {MOST_STORED_BYTES:,} bytes as compact JSON, also after an update (422, rule
`maxBytes`): the portal's own form of a document, which is larger, has a limit too.

**Errors** have a `message` for people. A 422 lists all violations under `errors`, each with a JSON
Pointer into the body or the name of a query parameter. An unknown path is a 404, a method that a
path does not have a 405 with `Allow`, both `{{"message": …}}`; a malformed HTTP request is a 400.

**Idempotency.** Send an `Idempotency-Key` with a POST to repeat it safely: the first response is
stored for 72 hours and replayed with `Idempotent-Replayed: true`. **Concurrent updates:** send the
`ETag` of the record as `If-Match`.

**Every response** has an `X-Request-Id`: that of the request, if it sent a valid one."""
#: One line per paragraph.
INTRODUCTION = re.sub(r"(?<!\n)\n(?!\n)", " ", _TEXT)


#: Errors of every operation that reads a body.
UNREADABLE = (
    BadRequest(INVALID_JSON.format("Expecting value at line 1, column 1"), code="invalid_json"),
    RequestTimeout(requests.TOO_SLOW.format(20)),
    TooLarge(requests.TOO_LARGE.format(2097152)),
    UnsupportedMediaType(requests.NOT_JSON_TYPE),
)
INVALID_BODY = ValidationError(
    [violation("/lineItems/0/unit/price", "minimum", "price must be at least 0.")]
)
INVALID_QUERY = ValidationError(
    [violation(PER_PAGE.name, "range", f"{PER_PAGE.name} must be an integer from 1 to 100.")]
)
UNKNOWN_PARAMETER = ValidationError(
    [violation("page", "unknown", describe_unknown("query parameter", "page", ()))]
)
#: Errors of every operation with an Idempotency-Key.
KEYED = (BadRequest(INVALID_KEY, code="idempotency_key_invalid"), ClaimLost())
BROKEN = (ApiError(INTERNAL), Unavailable(UNAVAILABLE))
KEYLESS = tuple(
    ErrorResponse(401, "Unauthorized", Unauthorized(message).body)
    for message in (api_keys.REQUIRED, api_keys.WRONG)
)
#: Errors of every operation of a company.
LIMITED = (*KEYLESS, TooManyRequests(SLOW_DOWN), *BROKEN)
#: Errors of every operation of an integration.
INTEGRATION_LIMITED = (
    ErrorResponse(401, "IntegrationUnauthorized", {"error": api_keys.INTEGRATION_WRONG}),
    TooManyRequests(SLOW_DOWN, retry_after=12),
    *BROKEN,
)

#: Headers of the errors with a status.
STATUS_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def describe(
    operations: Iterable[Operation], schemas: dict[str, JsonObject], examples: dict[str, JsonObject]
) -> JsonObject:
    """Return the OpenAPI description of operations.

    `schemas` maps file stems to schemas, `examples` file stems to {title: body}.
    """
    components = Components(schemas)
    paths: dict[str, JsonObject] = {}
    shared: dict[str, JsonObject] = {}
    for operation in operations:
        described = _describe_operation(operation, components, examples)
        _share_responses(operation, described["responses"], shared)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    delivery = FIXED["webhooks"]["event"]["post"]
    body = openapi_webhooks.describe_body(components)
    return {
        **FIXED,
        "info": {**FIXED["info"], "version": VERSION, "description": INTRODUCTION},
        "paths": paths,
        "webhooks": {"event": {"post": {**delivery, "requestBody": body}}},
        "components": {
            **FIXED["components"],
            "schemas": components.described,
            "responses": dict(sorted(shared.items())),
        },
    }


def _describe_operation(
    operation: Operation, components: Components, examples: dict[str, JsonObject]
) -> JsonObject:
    described: JsonObject = {
        "tags": [operation.tag],
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [
            *_path_parameters(operation, components),
            *(_query_parameter(each, components) for each in operation.query),
            *(
                {"$ref": f"#/components/parameters/{name}"}
                for name, takes in TAKES_HEADER.items()
                if takes(operation)
            ),
        ],
        "security": [{name: []} for name in operation.surface.security],
        "requestBody": operation.body and _request_body(operation.body, components, examples),
        "responses": _responses(operation, components),
    }
    return {key: value for key, value in described.items() if value or key == "security"}


def _path_parameters(operation: Operation, components: Components) -> Iterator[JsonObject]:
    """Yield the path parameters: the id of a record, or the name of a code table."""
    noun = operation.noun[:1].lower() + operation.noun[1:]
    for name in re.findall(r"{(\w+)}", operation.path):
        own = name.removesuffix("id").replace("_", " ").strip()
        what = "name of the code table" if name == "name" else f"id of the {own or noun}"
        schema = refer_to("CodeTableName" if name == "name" else "RecordId")
        is_text = operation.surface == INTEGRATION
        yield {
            "name": name,
            "in": "path",
            "description": f"The {what}.",
            "required": True,
            "schema": components.describe({"type": "string"} if is_text else schema),
        }


def _query_parameter(parameter: QueryParameter, components: Components) -> JsonObject:
    name, is_array = parameter.name, parameter.schema.get("type") == "array"
    style = {"style": "deepObject", "explode": True} if name.endswith("[]") else {}
    described = {
        "name": name.removesuffix("[]"),
        "in": "query",
        **({"style": "form", "explode": False} if is_array else style),
        "description": parameter.description,
        "allowEmptyValue": parameter.read is not None and parameter.can_be_empty,
        "schema": components.describe(parameter.schema),
    }
    return {key: value for key, value in described.items() if value or key == "explode"}


#: Request header -> predicate: whether an operation accepts it.
TAKES_HEADER: dict[str, Callable[[Operation], bool]] = {
    "Idempotency-Key": lambda operation: operation.method == "POST",
    # A part of a record, such as a link, has no ETag.
    "If-Match": lambda operation: (
        (operation.method in ("PUT", "DELETE") and "{id}/" not in operation.path)
        or operation.name.startswith(("submit_", "cancel_"))
    ),
    "If-None-Match": lambda operation: operation.is_record,
}


def _request_body(stem: str, components: Components, examples: dict[str, JsonObject]) -> JsonObject:
    schema = components.describe(refer_to(component_name(stem)))
    media: JsonObject = {"schema": schema}
    if stem in examples:
        media["examples"] = {
            _slug(title): {"summary": title, "value": body}
            for title, body in examples[stem].items()
        }
    return {"required": "required" in components.resolve(schema), "content": {JSON: media}}


def _responses(operation: Operation, components: Components) -> JsonObject:
    names = ("X-Request-Id", *operation.surface.headers)
    responses = {str(operation.status): _success(operation, names, components)}
    if operation.is_record:
        responses["304"] = {"description": "Not changed.", "headers": _headers(*names, "ETag")}
    by_status: dict[int, list[ErrorResponse]] = {}
    shared = map(operation.describe_error, _shared_errors(operation))
    for error in (*operation.own_errors(), *shared):
        by_status.setdefault(error.status, []).append(error)
    for status, errors in sorted(by_status.items()):
        responses[str(status)] = {
            "description": f"{HTTPStatus(status).phrase}.",
            "headers": _headers(*names, *STATUS_HEADERS.get(status, ())),
            "content": {JSON: _describe_errors(errors, components)},
        }
    return responses


def _success(operation: Operation, names: Iterable[str], components: Components) -> JsonObject:
    more = ["ETag"] * operation.is_record + ["Content-Disposition"] * operation.is_file
    more += ["Idempotent-Replayed"] * TAKES_HEADER["Idempotency-Key"](operation)
    described = {
        "description": operation.message or operation.summary + ".",
        "headers": _headers(*names, *more),
    }
    if "/" in operation.response:
        is_text = operation.response.startswith("text/")
        body = {"type": "string", **({} if is_text else {"format": "binary"})}
        return {**described, "content": {operation.response: {"schema": body}}}
    record = refer_to(operation.response.removesuffix("[]"))
    is_array = operation.response.endswith("[]")
    schema = components.describe({"type": "array", "items": record} if is_array else record)
    example = components.make_example(schema)
    if operation.message:
        example = {**example, "message": operation.message}
    return {**described, "content": {JSON: {"schema": schema, "example": example}}}


def _shared_errors(operation: Operation) -> Iterator[ApiError | ErrorResponse]:
    """Yield the errors that an operation has by rule."""
    if operation.surface is not PUBLIC:
        yield from INTEGRATION_LIMITED if operation.surface is INTEGRATION else LIMITED
    keyed = TAKES_HEADER["Idempotency-Key"](operation)
    if operation.body or keyed:
        yield from UNREADABLE
    if operation.body:
        yield INVALID_BODY
    if operation.query:
        yield INVALID_QUERY
    elif operation.surface is not PUBLIC:
        yield UNKNOWN_PARAMETER
    if keyed:
        yield from KEYED
        yield key_reused()
    if TAKES_HEADER["If-Match"](operation):
        yield PreconditionFailed(requests.CHANGED)
    yield ErrorResponse(400, "ApiError", BadRequest(NOT_HTTP).body)


def _describe_errors(errors: list[ErrorResponse], components: Components) -> JsonObject:
    schemas = {error.schema: components.describe(refer_to(error.schema)) for error in errors}
    examples: JsonObject = {}
    for error in errors:
        body = error.body or components.make_example(schemas[error.schema])
        title = body.get("message") or error.schema
        key = _slug(f"{body.get('code', '')} {title}")
        examples.setdefault(key, {"summary": title, "value": body})
    schema, *others = schemas.values()
    return {"schema": {"anyOf": [schema, *others]} if others else schema, "examples": examples}


def _headers(*names: str) -> JsonObject:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _share_responses(
    operation: Operation, responses: JsonObject, shared: dict[str, JsonObject]
) -> None:
    """Move the errors that an operation has by rule to the shared ones, and refer to them.

    Their names follow from the rule, so that other operations and errors do not change them.
    Errors that an operation declares itself stay with it. That its record does not exist is shared
    by operations with the same noun. Raises ValueError for two responses of one name.
    """
    for status in [each for each in responses if each >= "400"]:
        if name := _name_response(operation, int(status)):
            if shared.setdefault(name, responses[status]) != responses[status]:
                raise ValueError(f"Two responses would be the component {name}.")
            responses[status] = {"$ref": f"#/components/responses/{name}"}


def _name_response(operation: Operation, status: int) -> str | None:
    """Return the name of a shared response, or None if the operation declares an error itself.

    For example InvoiceNotFound, Unauthorized, IntegrationConflict, BadRequestOfBodyAndKey.
    """
    own = [error for error in operation.own_errors() if error.status == status]
    phrase = HTTPStatus(status).phrase.replace(" ", "")
    if own:
        is_missing_record = status == NotFound.status and "{id}" in operation.path
        if not is_missing_record or len(own) > 1:
            return None
        return "".join(map(str.capitalize, re.findall(r"\w+", operation.noun))) + phrase
    words = "And".join(_list_traits(operation, status))
    is_common = operation.surface is VALIDATION and status == Unauthorized.status
    prefix = "" if is_common else operation.surface.prefix
    return f"{prefix}{phrase}{f'Of{words}' if words else ''}"


def _list_traits(operation: Operation, status: int) -> Iterator[str]:
    """Yield the traits of an operation on which its errors of a status depend."""
    invalid_status = operation.surface.invalid_status
    if status not in (BadRequest.status, invalid_status):
        return
    if operation.body:
        yield "Body"
    if TAKES_HEADER["Idempotency-Key"](operation):
        yield "Key"
    if operation.query and status == invalid_status:
        yield "Query"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].rstrip("-")
