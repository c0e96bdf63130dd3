"""The OpenAPI 3.1 description, made from the table of operations and from the schemas that hold requests to it.

What holds for many operations stands here once and is added by rule: a refusal by the key, by the body, by the
headers that a method takes. Pure functions of their arguments.
"""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus

from service.api.operations import (
    COMPANY,
    FILTERS,
    INTEGRATION,
    OPEN,
    PATH_PARAMETERS,
    QUERY,
    VALIDATION,
    Refusal,
)
from service.json_codec import MOST_STORED_BYTES

VERSION = "1.0.0"
JSON = "application/json"

INTRODUCTION = f"""\
Creates invoices and adjustment notes, submits them to the tax authority's portal, cancels them, and tells how they stand.

**Keys.** A company's key goes into `X-API-Key` and reaches the data of that company only. The integration surface takes a key \
of its own in `X-Portal-Key`.

**Bodies** are JSON in UTF-8. Numbers are decimals and come back as they were sent. A date and time without an offset is UTC; \
what is given back is UTC. Unknown members at the top are refused; within parties, addresses and line items they are kept. A \
document, an invoice, a note or an e-invoice request as it is stored, has at most {MOST_STORED_BYTES:,} bytes as compact JSON, after an \
update as well (422, rule `maxBytes`): the portal takes no more of its own, larger form.

**Refusals** carry a `message` for a person. A 422 lists everything that is wrong at once under `errors`, each with a JSON \
Pointer into the body or the name of a query parameter. An unknown path is a 404, a method that a path does not have a 405 \
with `Allow`, both `{{"message": …}}`; a request that is not HTTP is a 400.

**Repeating.** Send an `Idempotency-Key` with a POST and repeat it without fear: the first answer is kept for 72 hours and \
given again with `Idempotent-Replayed: true`. **Changing what others change too:** send the `ETag` of the record as `If-Match`.

**Every response** has an `X-Request-Id`: the request's own, if it sent a sane one."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What the operations of one surface share. `error` and `fault` are the schemas of its refusals."""

    security: tuple
    error: str
    fault: str
    misfit: int = 422  # the status of a body or a query that breaks its schema
    headers: tuple = ()
    always: tuple = ()


BUSY = "The service is not available for a moment, please try again."
SLOW_DOWN = Refusal(429, "", "Too many requests, please slow down.")
BROKEN = (Refusal(500, "", "Internal server error"), Refusal(503, "", BUSY))
KEYLESS = tuple(
    Refusal(401, "Message", text) for text in ("API key is required", "Invalid API key")
)
RATES = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
TOO_MANY = {
    "error": "Too Many Requests",
    "message": "Too many requests, please slow down.",
    "details": {"retry_after": 12},
}

SURFACES = {
    COMPANY: Surface(("CompanyKey",), "Message", "Faults", always=(*KEYLESS, SLOW_DOWN, *BROKEN)),
    VALIDATION: Surface(
        ("CompanyKey",), "Failure", "Faults", always=(*KEYLESS, SLOW_DOWN, *BROKEN)
    ),
    INTEGRATION: Surface(
        ("IntegrationKey",),
        "IntegrationError",
        "IntegrationError",
        misfit=400,
        headers=RATES,
        always=(
            Refusal(
                401, "IntegrationUnauthorized", {"error": "Unauthorized: Valid API key required"}
            ),
            Refusal(429, "IntegrationError", TOO_MANY),
            *BROKEN,
        ),
    ),
    OPEN: Surface((), "Message", "Faults"),
}

#: Whatever reads a body can answer these.
UNREADABLE = (
    Refusal(400, "", "The body is not JSON: Expecting value at line 1, column 1."),
    Refusal(408, "", "The body took longer than 20 seconds."),
    Refusal(413, "", "The body is larger than is taken."),
    Refusal(415, "", "The content type must be application/json."),
)
MISFIT_BODY = [("/lineItems/0/unit/price", "minimum", "price must be at least 0.")]
MISFIT_QUERY = [("per_page", "range", "per_page must be a whole number from 1 to 100.")]
KEYED = (
    Refusal(400, "", "Idempotency-Key must be 1 to 255 printable characters."),
    Refusal(409, "", "A request with this Idempotency-Key is still running."),
)
REUSED = [("Idempotency-Key", "reused", "Idempotency-Key was used with another body.")]
NO_HTTP = Refusal(
    400, "Message", "The request is not one that HTTP allows, or its head is too large."
)
STALE = Refusal(412, "", "The record has changed since it was read.")

HEADER_PARAMETERS = {
    "Idempotency-Key": (
        "Makes the request one that can be repeated: any text that is new for each intent.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    ),
    "If-Match": (
        "The ETag of the record as it was read; refused when it has changed since.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The ETag of the record as it is known; 304 while it has not changed.",
        {"type": "string"},
    ),
}
HEADERS = {
    "X-Request-Id": ("Names the request in our logs.", {"type": "string"}),
    "ETag": ("Changes with the record.", {"type": "string"}),
    "Idempotent-Replayed": (
        "Present when the answer is that of an earlier request.",
        {"const": "true"},
    ),
    "Retry-After": ("Seconds to wait.", {"type": "integer", "minimum": 1}),
    "Content-Disposition": ("The name of the file.", {"type": "string"}),
    "X-RateLimit-Limit": ("Requests a minute.", {"type": "integer"}),
    "X-RateLimit-Remaining": ("Requests left.", {"type": "integer"}),
    "X-RateLimit-Reset": ("When the count starts anew, in Unix seconds.", {"type": "integer"}),
}
SECURITY = {
    "CompanyKey": ("X-API-Key", "The key of one company."),
    "IntegrationKey": ("X-Portal-Key", "The key of an integration account."),
}

#: Files whose definitions are named as they stand; other files put their own name in front.
SHARED = {"common", "records"}


def describe(operations, schemas, examples):
    """The description, as a dict. `schemas` maps a file's stem to its schema, `examples` a body's to {title: body}.

    A request schema that is not there is described as any object.
    """
    components = _components(
        schemas, {operation.body for operation in operations if operation.body}
    )
    paths = {}
    for operation in operations:
        described = _operation(operation, components, schemas, examples)
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


def component_name(stem):
    """invoice_create -> InvoiceCreate."""
    return "".join(part[:1].upper() + part[1:] for part in stem.split("_"))


def _components(schemas, bodies):
    """{name: schema} of every file and of every definition in one. Raises ValueError when two have one name."""
    found = {}

    def add(name, schema, stem):
        if name in found:
            raise ValueError(f"Two schemas would be the component {name}.")
        found[name] = _rewritten(schema, stem)

    for stem, schema in schemas.items():
        if stem not in SHARED:
            add(
                component_name(stem),
                {key: value for key, value in schema.items() if key not in FILE_ONLY},
                stem,
            )
        for name, definition in schema.get("$defs", {}).items():
            add(_definition_name(stem, name), definition, stem)
    for stem in sorted(bodies - schemas.keys()):
        add(component_name(stem), {"type": "object"}, stem)
    add("Description", {"type": "object"}, "")
    return dict(sorted(found.items()))


FILE_ONLY = {"$schema", "$id", "$defs", "title"}
AS_THEY_ARE = {"const", "enum", "default", "examples"}


def _definition_name(stem, name):
    return component_name(name) if stem in SHARED else component_name(stem) + component_name(name)


def _rewritten(part, stem):
    """A part of the schema file `stem` as it reads in the description: references point to components."""
    if isinstance(part, list):
        return [_rewritten(entry, stem) for entry in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value
        if key in AS_THEY_ARE
        else _pointed(value, stem)
        if key == "$ref"
        else _rewritten(value, stem)
        for key, value in part.items()
        if not (key == "$comment" and isinstance(value, str))
    }


def _pointed(reference, stem):
    file, _, pointer = reference.partition("#")
    stem = file.removesuffix(".json") or stem
    definition = re.fullmatch(r"/\$defs/([^/]+)(.*)", pointer)
    if definition:
        return f"#/components/schemas/{_definition_name(stem, definition[1])}{definition[2]}"
    return f"#/components/schemas/{component_name(stem)}{pointer}"


def _operation(operation, components, schemas, examples):
    surface = SURFACES[operation.surface]
    described = {
        "tags": [operation.tag],
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "description": operation.more,
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation),
            *_header_references(operation),
        ],
        "security": [{name: []} for name in surface.security],
    }
    if operation.body:
        described["requestBody"] = _request_body(operation.body, schemas, examples)
    described["responses"] = _responses(operation, surface, components)
    return {key: value for key, value in described.items() if value or key == "security"}


def _operation_id(operation):
    words = operation.path.removeprefix("/api").replace("{", "by_").replace("}", "")
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", words) if part]
    return operation.method.lower() + "".join(part[0].upper() + part[1:] for part in parts)


def _path_parameters(operation):
    whole = {"type": "string"} if operation.surface == INTEGRATION else None
    return [
        {"name": name, "in": "path", "required": True, "schema": whole or PATH_PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _query_parameters(operation):
    return [_query_parameter(*QUERY[name], name in FILTERS) for name in operation.query]


def _query_parameter(name, text, schema, is_filter):
    described = {
        "name": name,
        "in": "query",
        "description": text,
        "allowEmptyValue": is_filter,
        "schema": schema,
    }
    return {key: value for key, value in described.items() if value}


def _header_references(operation):
    return [
        {"$ref": f"#/components/parameters/{name}"}
        for name, takes in TAKES_HEADER.items()
        if takes(operation)
    ]


#: header -> whether an operation takes it.
TAKES_HEADER = {
    "Idempotency-Key": lambda operation: operation.method == "POST",
    "If-Match": lambda operation: operation.method in ("PUT", "DELETE"),
    "If-None-Match": lambda operation: operation.one,
}


def _header_parameter(name, text, schema):
    return {"name": name, "in": "header", "description": text, "schema": schema}


def _request_body(stem, schemas, examples):
    media = {"schema": {"$ref": f"#/components/schemas/{component_name(stem)}"}}
    if stem in examples:
        media["examples"] = {
            _slug(title): {"summary": title, "value": body}
            for title, body in examples[stem].items()
        }
    return {"required": "required" in schemas.get(stem, {}), "content": {JSON: media}}


def _responses(operation, surface, components):
    responses = {str(operation.status): _success(operation, surface, components)}
    if operation.one:
        responses["304"] = {
            "description": "Not changed.",
            "headers": _headers("X-Request-Id", *surface.headers, "ETag"),
        }
    by_status = {}
    for refusal in _refusals(operation, surface):
        by_status.setdefault(refusal.status, []).append(refusal)
    for status, refusals in sorted(by_status.items()):
        responses[str(status)] = _refused(status, refusals, surface, components)
    return responses


def _success(operation, surface, components):
    names = ["X-Request-Id", *surface.headers]
    names += ["ETag"] * operation.one + ["Content-Disposition"] * operation.file
    names += ["Idempotent-Replayed"] * TAKES_HEADER["Idempotency-Key"](operation)
    described = {
        "description": operation.says or operation.summary + ".",
        "headers": _headers(*names),
    }
    if "/" in operation.answers:
        media = {"schema": {"type": "string"}} if operation.answers.startswith("text/") else {}
        return {**described, "content": {operation.answers: media}}
    reference = {"$ref": f"#/components/schemas/{operation.answers}"}
    example = example_of(reference, components)
    if operation.says:
        example = {**example, "message": operation.says}
    return {**described, "content": {JSON: {"schema": reference, "example": example}}}


def _refusals(operation, surface):
    """The operation's own refusals, then those that it shares by rule."""
    yield from operation.refusals
    yield from surface.always
    keyed = TAKES_HEADER["Idempotency-Key"](operation)
    if operation.body or keyed:
        yield from UNREADABLE
    if operation.body:
        yield Refusal(surface.misfit, surface.fault, MISFIT_BODY)
    if operation.query:
        yield Refusal(surface.misfit, surface.fault, MISFIT_QUERY)
    if keyed:
        yield from KEYED
        yield Refusal(422, surface.fault, REUSED)
    if TAKES_HEADER["If-Match"](operation):
        yield STALE
    if any(takes(operation) for takes in TAKES_HEADER.values()):
        yield NO_HTTP


def _refused(status, refusals, surface, components):
    schemas = list(dict.fromkeys(refusal.schema or surface.error for refusal in refusals))
    references = [{"$ref": f"#/components/schemas/{name}"} for name in schemas]
    examples = {}
    for refusal in refusals:
        body = _refusal_body(refusal, surface, components)
        title = refusal.title or body.get("message") or refusal.schema
        examples.setdefault(_slug(title), {"summary": title, "value": body})
    names = ["X-Request-Id", *surface.headers, *(["Retry-After"] if status in (429, 503) else [])]
    return {
        "description": f"{HTTPStatus(status).phrase}.",
        "headers": _headers(*names),
        "content": {
            JSON: {
                "schema": references[0] if len(references) == 1 else {"anyOf": references},
                "examples": examples,
            }
        },
    }


def _refusal_body(refusal, surface, components):
    """The body of a refusal, from its message, from (path, rule, message) faults, or as it stands."""
    schema, example = refusal.schema or surface.error, refusal.example
    if example is None:
        return example_of({"$ref": f"#/components/schemas/{schema}"}, components)
    if isinstance(example, dict):
        return example
    body = {"message": example}
    if isinstance(example, list):
        errors = [dict(zip(("path", "rule", "message"), fault, strict=False)) for fault in example]
        body = {"message": errors[0]["message"], "errors": errors}
    if schema == "Failure":
        return {"success": False, **body}
    if schema == "IntegrationError":
        return {
            "error": HTTPStatus(refusal.status).phrase,
            "message": body.pop("message"),
            "details": body,
        }
    return body


def example_of(schema, components):
    """An example of a schema: its own first one, else put together from those of its parts."""
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


def _component(reference, components):
    part = components
    for name in reference.removeprefix("#/components/schemas/").split("/"):
        part = part[name]
    return part


PLAIN = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None}


def _headers(*names):
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _shared_responses(paths):
    """Moves refusals that several operations have in common into components, and returns those."""
    places = {}
    for methods in paths.values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if status >= "400":
                    places.setdefault(json.dumps(response, default=str), []).append(
                        (operation["responses"], status)
                    )
    shared = {}
    for found in places.values():
        if len(found) > 1:
            responses, status = found[0]
            name = _unused(HTTPStatus(int(status)).phrase.replace(" ", ""), shared)
            shared[name] = responses[status]
            for responses, status in found:
                responses[status] = {"$ref": f"#/components/responses/{name}"}
    return shared


def _unused(name, taken):
    number = 2
    unused = name
    while unused in taken:
        unused, number = f"{name}{number}", number + 1
    return unused


def _slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].rstrip("-")
