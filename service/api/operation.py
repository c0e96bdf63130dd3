"""Declaration of an API operation at its handler: the route and its description.

A module with handlers has the group of its operations, which makes the decorator that adds them:

    operation = GROUP = Group("Webhooks", NOUN)

    @operation("GET /api/webhooks/{id}", "Get a webhook", "Webhook", is_record=True)
    async def get_webhook(request: web.Request) -> web.Response: ...

table.py joins these lists. The routes and the OpenAPI description are derived from the table.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, Unpack

from aiohttp import web

from service.errors import ApiError, BadRequest, KeyReused, ValidationError
from service.http.error_responses import INTEGRATIONS, VALIDATIONS, shape_error
from service.http.middleware import OPEN
from service.http.requests import not_found
from service.json_types import JsonObject

#: Of an update that merges the sent members into the record.
REPLACES = (
    "Sent members replace stored ones, objects as a whole: `warnings` names the members that were "
    "removed because the new object does not have them."
)

#: Called with the request and, if the operation has one, the body.
AnyHandler = Callable[..., Awaitable[web.StreamResponse | None]]
Declared = TypeVar("Declared", bound=AnyHandler)


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter: its schema in the description, and the reader of its text.

    A reader raises ValueError with the message. An empty text means the same as none, unless
    `can_be_empty` is false. `rule` is that of the violation.
    """

    name: str
    schema: JsonObject
    description: str = ""
    read: Callable[[str], object] | None = None
    rule: str = "filter"
    can_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error response in the description: its status, the schema of its body, and an example.

    An empty `body` means the example of the schema.
    """

    status: int
    schema: str
    body: JsonObject = field(default_factory=JsonObject)


@dataclass(frozen=True, slots=True)
class Surface:
    """The properties that the operations of a surface share.

    `error`, `refusal` and `invalid` are the schemas of its error bodies: in general, of a 400 that
    an operation declares, and with violations, which have the status `invalid_status`. `prefix`
    begins the names of its shared responses.
    """

    security: tuple[str, ...]
    error: str
    refusal: str
    invalid: str = "Faults"
    invalid_status: int = 422
    headers: tuple[str, ...] = ()
    prefix: str = ""


COMPANY = Surface(("CompanyKey",), "ApiError", "Refusal")
VALIDATION = Surface(("CompanyKey",), "Failure", "Failure", "Failure", prefix="Validation")
INTEGRATION = Surface(
    ("IntegrationKey",),
    error="IntegrationError",
    refusal="IntegrationError",
    invalid="IntegrationError",
    invalid_status=400,
    headers=("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
    prefix="Integration",
)
PUBLIC = Surface((), "ApiError", "ApiError")


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path. `tag` is that of its group in the description.

    `route` is both, such as `GET /api/invoices`. `summary` and `description` are for clients.
    `response` is the success response: a schema in records.json, with `[]` for an array of it, or a
    media type; `message` is its message. `body` is the schema of the request in schemas/. `errors`
    are those of this operation alone, without the 404 for an unknown `{id}`, whose subject is
    `noun`. `is_record` marks a response with one record and its ETag, `is_file` a download. `name`
    is a verb and its object, such as create_invoice: by default the name of the handler. Several
    operations with one handler have a name each.
    """

    tag: str
    route: str
    summary: str
    response: str
    handler: AnyHandler
    message: str = ""
    body: str = ""
    query: tuple[QueryParameter, ...] = ()
    errors: tuple[ApiError | ErrorResponse, ...] = ()
    description: str = ""
    noun: str = ""
    is_record: bool = False
    is_file: bool = False
    name: str = ""

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with the names of its variable parts in braces."""
        return self.route.partition(" ")[2]

    @property
    def status(self) -> int:
        return 201 if self.name.startswith("create_") else 200

    @property
    def operation_id(self) -> str:
        """The operation's id in the description: createInvoice for create_invoice."""
        first, *rest = self.name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    @property
    def surface(self) -> Surface:
        """The surface that the path belongs to."""
        if self.path in OPEN:
            return PUBLIC
        if self.path.startswith(INTEGRATIONS):
            return INTEGRATION
        return VALIDATION if self.path.startswith(VALIDATIONS) else COMPANY

    def own_errors(self) -> list[ErrorResponse]:
        """Return the errors of this operation alone."""
        missing = [not_found(self.noun)] if "{id}" in self.path else []
        refusal = self.surface.refusal
        return [
            self.describe_error(error, refusal if isinstance(error, BadRequest) else "")
            for error in (*missing, *self.errors)
        ]

    def describe_error(self, error: ApiError | ErrorResponse, schema: str = "") -> ErrorResponse:
        """Return the response for an error, by default with the schema of the surface."""
        if isinstance(error, ErrorResponse):
            return error
        surface, status = self.surface, error.status
        if isinstance(error, ValidationError):
            schema, status = surface.invalid, surface.invalid_status
        elif isinstance(error, KeyReused):
            schema = surface.invalid
        body = shape_error(self.path, status, error.body)
        return ErrorResponse(status, schema or surface.error, body)


class Options(TypedDict, total=False):
    """The members of an Operation that have a default."""

    message: str
    body: str
    query: tuple[QueryParameter, ...]
    errors: tuple[ApiError | ErrorResponse, ...]
    description: str
    noun: str
    is_record: bool
    is_file: bool
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The operations of a module: their tag in the description, and by default their `noun`.

    A call returns the decorator that adds the operation of a handler.
    """

    tag: str
    noun: str = ""
    operations: list[Operation] = field(default_factory=list[Operation])

    def __call__(
        self, route: str, summary: str, response: str, **options: Unpack[Options]
    ) -> Callable[[Declared], Declared]:

        def declare(handler: Declared) -> Declared:
            more: Options = {"name": getattr(handler, "__name__", ""), "noun": self.noun, **options}
            self.operations.append(Operation(self.tag, route, summary, response, handler, **more))
            return handler

        return declare
