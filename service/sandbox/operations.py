"""The operations of the portal."""

from collections.abc import Callable
from typing import Any, NamedTuple

from . import documents, lists, submissions, taxpayers
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
    handle: Callable[[Call], Any]  # returns the value of the response
    status: int = 200


API = "/api/v1.0"
SUBMISSIONS, DOCUMENTS, TYPES = (
    f"{API}/{name}" for name in ("documentsubmissions", "documents", "documenttypes")
)
OPERATIONS = (
    PortalOperation("POST", "/connect/token", "login", 12, log_in),
    PortalOperation("GET", f"{API}/taxpayer/validate/{{tin}}", "tin", 60, taxpayers.validate_tin),
    PortalOperation("GET", f"{API}/taxpayer/search/tin", "tin_search", 60, taxpayers.search_tin),
    PortalOperation(
        "GET", f"{API}/taxpayers/qrcodeinfo/{{text}}", "qr", 60, taxpayers.get_qr_information
    ),
    PortalOperation("POST", SUBMISSIONS, "submit", 100, submissions.submit, 202),
    PortalOperation("POST", f"{SUBMISSIONS}/", "submit", 100, submissions.submit, 202),
    PortalOperation("GET", f"{SUBMISSIONS}/{{uid}}", "submission", 300, submissions.get_submission),
    PortalOperation("GET", f"{DOCUMENTS}/recent", "recent", 12, lists.recent),
    PortalOperation("GET", f"{DOCUMENTS}/search", "search", 12, lists.search),
    PortalOperation("GET", f"{DOCUMENTS}/{{uuid}}/details", "details", 125, documents.get_details),
    PortalOperation("GET", f"{DOCUMENTS}/{{uuid}}/raw", "raw", 60, documents.get_raw),
    PortalOperation(
        "PUT", f"{DOCUMENTS}/state/{{uuid}}/state", "state", 12, documents.change_state
    ),
    PortalOperation("GET", f"{API}/notifications/taxpayer", "notifications", 0, list_notifications),
    PortalOperation("GET", TYPES, "types", 0, list_types),
    PortalOperation("GET", f"{TYPES}/{{id}}", "types", 0, get_type),
    PortalOperation("GET", f"{TYPES}/{{id}}/versions/{{version}}", "types", 0, get_version),
)
