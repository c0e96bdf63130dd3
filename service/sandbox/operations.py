"""The operations of the portal: methods, paths, names and handlers."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from . import documents, lists, submissions, taxpayers
from .document_types import get_type, get_version, list_types
from .login import log_in
from .notifications import list_notifications

#: Handlers of the portal's operations never stream, so that errors can change their responses.
Handler = Callable[[web.Request], Awaitable[web.Response]]
#: Method, path, name of the operation for errors and counts, handler.
Operation = tuple[str, str, str, Handler]

#: Operations below /api/v1.0.
BELOW_API: tuple[Operation, ...] = (
    ("GET", "/taxpayer/validate/{tin}", "tin", taxpayers.validate_tin),
    ("GET", "/taxpayer/search/tin", "tin_search", taxpayers.search_tin),
    ("GET", "/taxpayers/qrcodeinfo/{text}", "qr", taxpayers.get_qr_information),
    ("POST", "/documentsubmissions", "submit", submissions.submit),
    ("POST", "/documentsubmissions/", "submit", submissions.submit),
    ("GET", "/documentsubmissions/{uid}", "submission", submissions.get_submission),
    ("GET", "/documents/recent", "recent", lists.recent),
    ("GET", "/documents/search", "search", lists.search),
    ("GET", "/documents/{uuid}/details", "details", documents.get_details),
    ("GET", "/documents/{uuid}/raw", "raw", documents.get_raw),
    ("PUT", "/documents/state/{uuid}/state", "state", documents.change_state),
    ("GET", "/notifications/taxpayer", "notifications", list_notifications),
    ("GET", "/documenttypes", "types", list_types),
    ("GET", "/documenttypes/{id}", "types", get_type),
    ("GET", "/documenttypes/{id}/versions/{version}", "types", get_version),
)
OPERATIONS: tuple[Operation, ...] = (
    ("POST", "/connect/token", "login", log_in),
    *((method, f"/api/v1.0{path}", name, handler) for method, path, name, handler in BELOW_API),
)
