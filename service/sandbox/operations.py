"""The operations of the portal."""

from collections.abc import Callable
from typing import NamedTuple

from . import documents, lists, submissions, taxpayers
from .answers import Body
from .controls import Call
from .document_types import get_type, get_version, list_types
from .login import log_in
from .notifications import list_notifications


class PortalOperation(NamedTuple):
    """An operation of the portal: its name for errors and counts, and its rate limit.

    The limit is in requests per minute and client id; 0: none is published. Portal: 1.4
    """

    method: str
    path: str
    name: str
    per_minute: int
    handle: Callable[[Call], Body]  # returns the value of the response
    status: int = 200


OPERATIONS = (
    PortalOperation("POST", "/connect/token", "login", 12, log_in),
    PortalOperation("GET", "/api/v1.0/taxpayer/validate/{tin}", "tin", 60, taxpayers.validate_tin),
    PortalOperation("GET", "/api/v1.0/taxpayer/search/tin", "tin_search", 60, taxpayers.search_tin),
    PortalOperation(
        "GET", "/api/v1.0/taxpayers/qrcodeinfo/{text}", "qr", 60, taxpayers.get_qr_information
    ),
    PortalOperation(
        "POST", "/api/v1.0/documentsubmissions{end:/?}", "submit", 100, submissions.submit, 202
    ),
    PortalOperation(
        "GET", "/api/v1.0/documentsubmissions/{uid}", "submission", 300, submissions.get_submission
    ),
    PortalOperation("GET", "/api/v1.0/documents/recent", "recent", 12, lists.recent),
    PortalOperation("GET", "/api/v1.0/documents/search", "search", 12, lists.search),
    PortalOperation(
        "GET", "/api/v1.0/documents/{uuid}/details", "details", 125, documents.get_details
    ),
    PortalOperation("GET", "/api/v1.0/documents/{uuid}/raw", "raw", 60, documents.get_raw),
    PortalOperation(
        "PUT", "/api/v1.0/documents/state/{uuid}/state", "state", 12, documents.change_state
    ),
    PortalOperation(
        "GET", "/api/v1.0/notifications/taxpayer", "notifications", 0, list_notifications
    ),
    PortalOperation("GET", "/api/v1.0/documenttypes", "types", 0, list_types),
    PortalOperation("GET", "/api/v1.0/documenttypes/{id}", "types", 0, get_type),
    PortalOperation(
        "GET", "/api/v1.0/documenttypes/{id}/versions/{version}", "types", 0, get_version
    ),
)
