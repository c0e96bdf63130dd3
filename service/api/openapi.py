"""The OpenAPI 3.1 description, derived from the operations and the request schemas.

Everything that many operations share is added here by rule: errors of authentication and of the
body, headers by method. Pure functions.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from service.api.operation import (
    COMPANY,
    INTEGRATION,
    PUBLIC,
    VALIDATION,
    ErrorResponse,
    Operation,
    QueryParameter,
    Surface,
)
from service.api.pagination import PER_PAGE, read_number, refer_to
from service.db.transactions import UNAVAILABLE
from service.errors import (
    ApiError,
    BadRequest,
    ClaimLost,
    PreconditionFailed,
    RequestTimeout,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
    ValidationError,
    Violation,
    violation,
)
from service.http import api_keys, requests
from service.http.error_responses import INTERNAL
from service.http.idempotency import INVALID_KEY, LONGEST_KEY, key_reused
from service.http.middleware import SLOW_DOWN
from service.http.server import NOT_HTTP
from service.json_codec import INVALID_JSON, MOST_STORED_BYTES
from service.schema import describe_unknown

VERSION = "1.0.0"
JSON = "application/json"

#: Parsed JSON of a schema, or of a part of the description.
Json = dict[str, Any]
#: (description, schema) of a header.
Header = tuple[str, Json]

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
UNKNOWN_PARAMETER = ValidationError(
    [violation("page", "unknown", describe_unknown("query parameter", "page", ()))]
)
#: Errors of every operation with an Idempotency-Key.
KEYED = (BadRequest(INVALID_KEY, code="idempotency_key_invalid"), ClaimLost())
BROKEN = (ApiError(INTERNAL), Unavailable(UNAVAILABLE))
KEYLESS = tuple(
    ErrorResponse(401, "Message", Unauthorized(message).body)
    for message in (api_keys.REQUIRED, api_keys.WRONG)
)
LIMITED = (*KEYLESS, TooManyRequests(SLOW_DOWN), *BROKEN)
#: Errors of every operation of a surface.
ALWAYS: dict[Surface, tuple[ApiError | ErrorResponse, ...]] = {
    COMPANY: LIMITED,
    VALIDATION: LIMITED,
    INTEGRATION: (
        ErrorResponse(401, "IntegrationUnauthorized", {"error": api_keys.INTEGRATION_WRONG}),
        TooManyRequests(SLOW_DOWN, retry_after=12),
        *BROKEN,
    ),
    PUBLIC: (),
}

HEADER_PARAMETERS: dict[str, Header] = {
    "Idempotency-Key": (
        "Makes the request safe to repeat. Choose a new text for each operation.",
        {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]+$"},
    ),
    "If-Match": (
        "The ETag of the record. The request is rejected if the record has changed.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The ETag of the record. The response is a 304 if the record has not changed.",
        {"type": "string"},
    ),
}
HEADERS: dict[str, Header] = {
    "X-Request-Id": ("Identifies the request in the logs of the service.", {"type": "string"}),
    "ETag": ("Changes with the record.", {"type": "string"}),
    "Idempotent-Replayed": (
        "Present if the response is that of an earlier request.",
        {"const": "true"},
    ),
    "WWW-Authenticate": ("The header in which the key is sent.", {"type": "string"}),
    "Retry-After": ("Seconds to wait.", {"type": "integer", "minimum": 1}),
    "Content-Disposition": ("The name of the file.", {"type": "string"}),
    "X-RateLimit-Limit": ("Requests per minute.", {"type": "integer"}),
    "X-RateLimit-Remaining": ("Remaining requests.", {"type": "integer"}),
    "X-RateLimit-Reset": (
        "The time at which the limit is reset, in Unix seconds.",
        {"type": "integer"},
    ),
}
#: Headers of the errors with a status.
STATUS_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
SECURITY = {
    "CompanyKey": ("X-API-Key", "The key of one company."),
    "IntegrationKey": ("X-Portal-Key", "The key of an integration account."),
}

#: Files whose definitions keep their names; definitions of other files get the file's as a prefix.
SHARED = {"common", "records"}


def describe(
    operations: Iterable[Operation], schemas: dict[str, Json], examples: dict[str, Json]
) -> Json:
    """Return the description.

    `schemas` maps file stems to schemas, `examples` file stems to {title: body}. A request schema
    that does not exist is described as any object.
    """
    operations = tuple(operations)
    components = _components(
        schemas, {operation.body for operation in operations if operation.body}
    )
    paths: dict[str, Json] = {}
    for operation in operations:
        described = _describe_operation(operation, components, schemas, examples)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "E-invoicing API", "version": VERSION, "description": INTRODUCTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _shared_responses(paths),
            "parameters": {
                name: _header_parameter(name, *facts) for name, facts in HEADER_PARAMETERS.items()
            },
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in HEADERS.items()
            },
            "securitySchemes": {
                name: {"type": "apiKey", "in": "header", "name": header, "description": text}
                for name, (header, text) in SECURITY.items()
            },
        },
    }


def component_name(stem: str) -> str:
    """Return the name of a component: InvoiceCreate for invoice_create."""
    return "".join(part[:1].upper() + part[1:] for part in stem.split("_"))


def _components(schemas: dict[str, Json], bodies: set[str]) -> dict[str, Json]:
    """Return {name: schema} of all files and their definitions.

    Raises ValueError for two schemas of one name.
    """
    found: dict[str, Json] = {}

    def add(name: str, schema: Json, stem: str) -> None:
        if name in found:
            raise ValueError(f"Two schemas would be the component {name}.")
        found[name] = _rewrite(schema, stem)

    for stem, schema in schemas.items():
        if stem not in SHARED:
            public = {key: value for key, value in schema.items() if key not in FILE_ONLY}
            add(component_name(stem), public, stem)
        for name, definition in schema.get("$defs", {}).items():
            add(_definition_name(stem, name), definition, stem)
    for stem in sorted(bodies - schemas.keys()):
        add(component_name(stem), {"type": "object"}, stem)
    add("Description", {"type": "object"}, "")
    return dict(sorted(found.items()))


FILE_ONLY = {"$schema", "$id", "$defs", "title"}
UNCHANGED = {"const", "enum", "default", "examples"}


def _definition_name(stem: str, name: str) -> str:
    return component_name(name) if stem in SHARED else component_name(stem) + component_name(name)


def _rewrite(part: Any, stem: str) -> Any:
    """Return a part of the schema file `stem` with references to components."""
    if isinstance(part, list):
        return [_rewrite(entry, stem) for entry in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value
        if key in UNCHANGED
        else _rewrite_reference(value, stem)
        if key == "$ref"
        else _rewrite(value, stem)
        for key, value in part.items()
        if not (key == "$comment" and isinstance(value, str))
    }


def _rewrite_reference(reference: str, stem: str) -> str:
    file, _, pointer = reference.partition("#")
    stem = file.removesuffix(".json") or stem
    definition = re.fullmatch(r"/\$defs/([^/]+)(.*)", pointer)
    if definition:
        return f"#/components/schemas/{_definition_name(stem, definition[1])}{definition[2]}"
    return f"#/components/schemas/{component_name(stem)}{pointer}"


def _describe_operation(
    operation: Operation,
    components: dict[str, Json],
    schemas: dict[str, Json],
    examples: dict[str, Json],
) -> Json:
    surface = operation.surface
    described: Json = {
        "tags": [operation.tag],
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [
            *_path_parameters(operation),
            *map(_query_parameter, operation.query),
            *_header_references(operation),
        ],
        "security": [{name: []} for name in surface.security],
    }
    if operation.body:
        described["requestBody"] = _request_body(operation.body, schemas, examples)
    described["responses"] = _responses(operation, components)
    return {key: value for key, value in described.items() if value or key == "security"}


def _operation_id(operation: Operation) -> str:
    words = operation.path.removeprefix("/api").replace("{", "by_").replace("}", "")
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", words) if part]
    return operation.method.lower() + "".join(part[0].upper() + part[1:] for part in parts)


#: Name of a path parameter that is not an id -> its schema.
NAMED = {"name": "CodeTableName"}


def _path_parameters(operation: Operation) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(operation, name)}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _path_schema(operation: Operation, name: str) -> Json:
    if operation.surface == INTEGRATION:
        return {"type": "string"}
    return refer_to(NAMED.get(name, "RecordId"))


def _query_parameter(parameter: QueryParameter) -> Json:
    name, is_array = parameter.name, parameter.schema.get("type") == "array"
    style = {"style": "deepObject", "explode": True} if name.endswith("[]") else {}
    described = {
        "name": name.removesuffix("[]"),
        "in": "query",
        **({"style": "form", "explode": False} if is_array else style),
        "description": parameter.description,
        "allowEmptyValue": parameter.read is not None,
        "schema": parameter.schema,
    }
    return {key: value for key, value in described.items() if value or key == "explode"}


def _header_references(operation: Operation) -> list[Json]:
    return [
        {"$ref": f"#/components/parameters/{name}"}
        for name, takes in TAKES_HEADER.items()
        if takes(operation)
    ]


#: Request header -> predicate: whether an operation accepts it.
TAKES_HEADER: dict[str, Callable[[Operation], bool]] = {
    "Idempotency-Key": lambda operation: operation.method == "POST",
    "If-Match": lambda operation: operation.method in ("PUT", "DELETE"),
    "If-None-Match": lambda operation: operation.is_record,
}


def _header_parameter(name: str, text: str, schema: Json) -> Json:
    return {"name": name, "in": "header", "description": text, "schema": schema}


def _request_body(stem: str, schemas: dict[str, Json], examples: dict[str, Json]) -> Json:
    media: Json = {"schema": refer_to(component_name(stem))}
    if stem in examples:
        media["examples"] = {
            _slug(title): {"summary": title, "value": body}
            for title, body in examples[stem].items()
        }
    return {"required": "required" in schemas.get(stem, {}), "content": {JSON: media}}


def _responses(operation: Operation, components: dict[str, Json]) -> Json:
    names = ("X-Request-Id", *operation.surface.headers)
    responses = {str(operation.status): _success(operation, names, components)}
    if operation.is_record:
        responses["304"] = {"description": "Not changed.", "headers": _headers(*names, "ETag")}
    by_status: dict[int, list[ErrorResponse]] = {}
    for error in _errors(operation):
        by_status.setdefault(error.status, []).append(error)
    for status, errors in sorted(by_status.items()):
        more = STATUS_HEADERS.get(status, ())
        described = {
            "description": f"{HTTPStatus(status).phrase}.",
            "headers": _headers(*names, *more),
        }
        responses[str(status)] = {
            **described,
            "content": {JSON: _describe_errors(errors, components)},
        }
    return responses


def _success(operation: Operation, names: Iterable[str], components: dict[str, Json]) -> Json:
    more = ["ETag"] * operation.is_record + ["Content-Disposition"] * operation.is_file
    more += ["Idempotent-Replayed"] * TAKES_HEADER["Idempotency-Key"](operation)
    described = {
        "description": operation.message or operation.summary + ".",
        "headers": _headers(*names, *more),
    }
    if "/" in operation.response:
        media = {"schema": {"type": "string"}} if operation.response.startswith("text/") else {}
        return {**described, "content": {operation.response: media}}
    reference = refer_to(operation.response)
    example = example_of(reference, components)
    if operation.message:
        example = {**example, "message": operation.message}
    return {**described, "content": {JSON: {"schema": reference, "example": example}}}


def _errors(operation: Operation) -> Iterator[ErrorResponse]:
    """Yield the operation's own errors, then those that it shares by rule."""
    yield from operation.own_errors()
    for error in _shared_errors(operation):
        is_described = isinstance(error, ErrorResponse)
        yield error if is_described else operation.describe_error(error)


def _shared_errors(operation: Operation) -> Iterator[ApiError | ErrorResponse]:
    yield from ALWAYS[operation.surface]
    keyed = TAKES_HEADER["Idempotency-Key"](operation)
    if operation.body or keyed:
        yield from UNREADABLE
    if operation.body:
        yield INVALID_BODY
    if operation.query:
        yield _invalid_query()
    elif operation.surface is not PUBLIC:
        yield UNKNOWN_PARAMETER
    if keyed:
        yield from KEYED
        yield key_reused()
    if TAKES_HEADER["If-Match"](operation):
        yield PreconditionFailed(requests.CHANGED)
    if any(takes(operation) for takes in TAKES_HEADER.values()):
        yield ErrorResponse(400, "Message", BadRequest(NOT_HTTP).body)


def _invalid_query() -> ValidationError:
    violations: list[Violation] = []
    read_number({PER_PAGE.name: "0"}, PER_PAGE, violations)
    return ValidationError(violations)


def _describe_errors(errors: list[ErrorResponse], components: dict[str, Json]) -> Json:
    """Return the schemas and the examples of the errors of one status."""
    references = [refer_to(name) for name in dict.fromkeys(error.schema for error in errors)]
    examples: Json = {}
    for error in errors:
        body = error.body or example_of(refer_to(error.schema), components)
        title = error.title or body.get("message") or error.schema
        examples.setdefault(_slug(title), {"summary": title, "value": body})
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"schema": schema, "examples": examples}


def example_of(schema: Json, components: dict[str, Json]) -> Any:
    """Return the first example of a schema, or one built from the examples of its parts."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(_component(schema["$ref"], components), components)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], components)
    kind = schema.get("type", "object")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "object":
        return {
            name: example_of(part, components)
            for name, part in schema.get("properties", {}).items()
        }
    if kind == "array":
        return [example_of(schema["items"], components)]
    return PLAIN[kind]


def _component(reference: str, components: dict[str, Json]) -> Json:
    part = components
    for name in reference.removeprefix("#/components/schemas/").split("/"):
        part = part[name]
    return part


PLAIN: Json = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None}


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _shared_responses(paths: dict[str, Json]) -> Json:
    """Replace errors that several operations share by references, and return the shared ones."""
    places: dict[str, list[tuple[Json, str]]] = {}
    for methods in paths.values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if status >= "400":
                    places.setdefault(json.dumps(response, default=str), []).append(
                        (operation["responses"], status)
                    )
    shared: Json = {}
    for found in places.values():
        if len(found) > 1:
            responses, status = found[0]
            name = _unused(HTTPStatus(int(status)).phrase.replace(" ", ""), shared)
            shared[name] = responses[status]
            for responses, status in found:
                responses[status] = {"$ref": f"#/components/responses/{name}"}
    return shared


def _unused(name: str, taken: Json) -> str:
    number = 2
    unused = name
    while unused in taken:
        unused, number = f"{name}{number}", number + 1
    return unused


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].rstrip("-")
