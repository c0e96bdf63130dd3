"""The operations that all kinds of documents have."""

from service.api import documents, links, printing, submissions
from service.api.documents import Documents
from service.documents.kind import CONSOLIDATED
from service.errors import ApiError


def declare(
    resource: Documents,
    update_errors: tuple[ApiError, ...] = (),
    submit_errors: tuple[ApiError, ...] = (),
) -> None:
    """Declare the operations of a kind, with errors that other kinds do not have.

    A consolidated invoice cannot be updated.
    """
    documents.declare_reading(resource)
    if resource.kind is not CONSOLIDATED:
        documents.declare_update(resource, update_errors)
    documents.declare_deletion(resource)
    submissions.declare(resource, submit_errors)
    printing.declare(resource)
    links.declare(resource)
