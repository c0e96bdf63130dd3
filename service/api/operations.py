"""The table of API operations, one row per method and path.

openapi.py derives the OpenAPI description from it, and adds what follows from the surface, the
method and the path of a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.documents import states
from service.errors import CONSTRAINTS

COMPANY, VALIDATION, INTEGRATION, OPEN = "company", "validation", "integration", "open"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response: its status, the schema of its body, and an example.

    `example` is a body, a message, a list of (path, rule, message), or None for the schema's own.
    `title` names an example whose message is used by another one.
    """

    status: int
    schema: str
    example: dict[str, Any] | str | list[tuple[str, str, str]] | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path.

    `answers` is the success response: a schema in records.json, or a media type. `says` is its
    message in the example. `body` is the schema of the request in schemas/. `query` has names of
    QUERY. `more` is the description. `one` marks a response with one record and its ETag, `file` a
    download.
    """

    method: str
    path: str
    tag: str
    summary: str
    answers: str
    status: int = 200
    says: str = ""
    body: str = ""
    query: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    more: str = ""
    surface: str = COMPANY
    one: bool = False
    file: bool = False


def _message(status: int, *texts: str) -> tuple[Refusal, ...]:
    return tuple(Refusal(status, "Message", text) for text in texts)


def _failed(*texts: str) -> tuple[Refusal, ...]:
    return tuple(Refusal(400, "Refusal", text) for text in texts)


def _violation(path: str, rule: str, message: str) -> tuple[Refusal, ...]:
    return (Refusal(422, "Faults", [(path, rule, message)]),)


PATH_PARAMETERS = {
    "id": {"$ref": "#/components/schemas/RecordId"},
    "submitted_document_id": {"$ref": "#/components/schemas/RecordId"},
    "delivery_id": {"$ref": "#/components/schemas/RecordId"},
}

SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
_INSTANT = {"$ref": "#/components/schemas/Instant"}

#: Name in this table -> (parameter, description, schema). A parameter can have several names.
QUERY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "page": (
        "page",
        "A page after the last one is empty.",
        {"type": "integer", "minimum": 1, "maximum": 10**9, "default": 1},
    ),
    "per_page": ("per_page", "", {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}),
    "status": ("status", "", {"$ref": "#/components/schemas/DocumentStatus"}),
    "request_status": ("status", "", {"enum": ["Pending", "Approve", "Reject"]}),
    "invoice_type": ("type", "", {"$ref": "#/components/schemas/InvoiceType"}),
    "note_type": ("type", "", {"$ref": "#/components/schemas/NoteType"}),
    "consolidated_type": ("type", "", {"$ref": "#/components/schemas/ConsolidatedInvoiceType"}),
    "issued_from": ("issued_from", "The earliest date and time of issue.", _INSTANT),
    "issued_to": ("issued_to", "The latest date and time of issue.", _INSTANT),
    "query": (
        "query",
        "Search text: a code, a full code or a name.",
        {"type": "string", "maxLength": 300},
    ),
    "sort": (
        "sort",
        "A leading `-` means descending.",
        {"enum": list(SORTS), "default": "-id"},
    ),
    "sort_by_id": (
        "sort",
        "A leading `-` means descending.",
        {"enum": ["id", "-id"], "default": "-id"},
    ),
    "delivery_status": ("status", "", {"enum": ["Pending", "Delivered", "Failed"]}),
    "after": (
        "after",
        "Only events after this one.",
        {"type": "integer", "minimum": 0, "default": 0},
    ),
    "limit": ("limit", "", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}),
    "types": (
        "types",
        "Only events of these types, separated by commas.",
        {"type": "string", "maxLength": 300},
    ),
}
PAGE = ("page", "per_page")
#: Parameters of which an empty value means the same as none.
FILTERS = {
    "status",
    "request_status",
    "invoice_type",
    "note_type",
    "consolidated_type",
    "issued_from",
    "issued_to",
    "query",
    "types",
    "delivery_status",
}
DOCUMENT_FILTERS = ("status", "issued_from", "issued_to", "query", "sort")

_REASONS = [
    {
        "code": "CF321",
        "path": "/issueDateTime",
        "message": "The issue time is more than 72 hours ago.",
    }
]
_TIN_CODE = states.TIN_NOT_VERIFIED["code"]
_UNVERIFIED = {
    "message": states.SUBMIT_FAILED,
    "code": _TIN_CODE,
    "errors": [states.TIN_NOT_VERIFIED],
    "retryable": True,
}
SUBMIT_REFUSALS = (
    Refusal(
        400, "Refusal", {"message": states.SUBMIT_FAILED, "errors": _REASONS, "retryable": False}
    ),
    Refusal(400, "Refusal", _UNVERIFIED, "The TIN is not verified"),
)
#: File extension of a QR code -> its media type.
PICTURES = {"svg": "image/svg+xml", "png": "image/png"}
NO_LINK = "The {noun} is not Valid, so it has no validation link."
STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."


def _not_found(noun: str) -> tuple[Refusal, ...]:
    return _message(404, f"{noun} not found")


def _cancel_refusals(noun: str) -> tuple[Refusal, ...]:
    return (
        *(
            Refusal(400, "Refusal", {"message": text, "code": code})
            for code, text in states.CANCEL_CODES.items()
        ),
        *_failed(states.CANCEL_FAILED),
        Refusal(
            400,
            "Refusal",
            {"message": states.CANCEL_FAILED, "code": _TIN_CODE},
            "The TIN is not verified",
        ),
        Refusal(400, "Refusal", {"message": states.CANCEL_FAILED, "code": "outcome_unknown"}),
        *_message(403, *states.CANCEL_MESSAGES[noun].values()),
        *_message(409, STILL_SUBMITTING.format(noun=noun)),
    )


def _submissions(
    place: str, tag: str, noun: str, cancelling: str, submit_refusals: Iterable[Refusal] = ()
) -> tuple[Operation, ...]:
    """Return the operations that all kinds of documents share."""
    title, article = noun.capitalize(), "an" if noun[0] in "aeiou" else "a"
    unknown = _not_found(title)
    documents = f"{place}/{{id}}/submitted-documents"
    return (
        Operation(
            "POST",
            f"{place}/{{id}}/preflight",
            tag,
            f"Run the portal's checks on {article} {noun}",
            "PreflightAnswer",
            body="preflight",
            refusals=unknown,
            more="Sends nothing and changes nothing. `at` checks the document as of another time.",
        ),
        Operation(
            "POST",
            f"{place}/{{id}}/submit-to-portal",
            tag,
            f"Submit {article} {noun} to the portal",
            "Success",
            says=states.SUBMITTED.format(noun=noun),
            body="submit",
            refusals=(*unknown, *SUBMIT_REFUSALS, *submit_refusals),
            more="Waits for the portal to accept it. A submitted document is not sent again. "
            "While the outcome of a submission is unknown, the response is a 400 and the document "
            "stays locked; a repeated request joins the running submission.",
        ),
        Operation(
            "POST",
            f"{place}/{{id}}/{cancelling}",
            tag,
            "Cancel the latest submitted document",
            "Success",
            says="The submitted document has been cancelled.",
            body="cancel",
            refusals=(*unknown, *_cancel_refusals(noun)),
            more="Allowed for 72 hours after the submission. The code `outcome_unknown` means that "
            "the portal gave no clear response: the service looks it up until it is certain, "
            "`cancellation_requested_at` is set meanwhile, and a repeated request sends the "
            "cancellation again.",
        ),
        Operation(
            "GET",
            documents,
            tag,
            f"List the submitted documents of {article} {noun}",
            "SubmittedDocuments",
            refusals=unknown,
            more="All of them, newest first. Each submission creates a new one.",
        ),
        Operation(
            "GET",
            f"{documents}/{{submitted_document_id}}",
            tag,
            "Get a submitted document",
            "SubmittedDocument",
            refusals=(*unknown, *_not_found("Submitted document")),
            one=True,
        ),
        Operation(
            "GET",
            f"{place}/{{id}}/print",
            tag,
            f"Print {article} {noun}",
            "text/html",
            refusals=unknown,
            more="A page for paper and screen, without scripts. For a submitted document it shows "
            "the sent document, with the QR code of the validation link while it is Valid. Other "
            "pages are marked as draft, not validated or cancelled.",
        ),
        *(
            _qr_code(f"{place}/{{id}}/qr.{kind}", tag, noun, answers, unknown)
            for kind, answers in PICTURES.items()
        ),
    )


def _qr_code(
    path: str, tag: str, noun: str, answers: str, unknown: tuple[Refusal, ...]
) -> Operation:
    extension = answers.partition("/")[2][:3].upper()
    return Operation(
        "GET",
        path,
        tag,
        f"Get the QR code of the validation link as {extension}",
        answers,
        refusals=(*unknown, *_message(404, NO_LINK.format(noun=noun))),
        more="It exists while the document is Valid.",
    )


_INVOICE = _not_found("Invoice")
_IN_CONSOLIDATED = _message(
    409, "The invoice is part of a consolidated invoice; delete or cancel that first."
)
_TAKEN = _violation("/code", "unique", "The code has already been used this year.")
_NOTE_TAKEN = _violation(
    "/adjustmentNoteCode", "unique", "The code has already been used by a note of this type."
)
_STORED = (
    "`submitImmediately` submits the document within the request. `isReady` submits it in the "
    "background if the company's setting AUTO_SUBMIT_INVOICE is on. A failed submission does not "
    "fail the request: `message` and `data` describe its outcome."
)

INVOICES = (
    Operation(
        "POST",
        "/api/invoices",
        "Invoices",
        "Create an invoice",
        "Stored",
        201,
        "Invoice created.",
        "invoice_create",
        refusals=_TAKEN,
        more=_STORED,
    ),
    Operation(
        "GET",
        "/api/invoices",
        "Invoices",
        "List invoices",
        "InvoiceList",
        query=(*PAGE, "invoice_type", *DOCUMENT_FILTERS),
        more="Newest first.",
    ),
    Operation(
        "GET",
        "/api/invoices/export-all",
        "Invoices",
        "Export all invoices",
        "InvoiceExports",
        file=True,
        more="Every invoice of the company, newest first, without pages.",
    ),
    Operation(
        "GET",
        "/api/invoices/{id}",
        "Invoices",
        "Get an invoice",
        "Invoice",
        refusals=_INVOICE,
        one=True,
    ),
    Operation(
        "PUT",
        "/api/invoices/{id}",
        "Invoices",
        "Update an invoice",
        "Stored",
        says="Invoice updated.",
        body="invoice_update",
        refusals=(
            *_INVOICE,
            *_message(403, states.describe_locked("invoice", "updated")),
            *_IN_CONSOLIDATED,
            *_TAKEN,
        ),
        more=f"Sent members replace stored ones. {_STORED}",
    ),
    Operation(
        "DELETE",
        "/api/invoices/{id}",
        "Invoices",
        "Delete an invoice",
        "Success",
        says="Invoice deleted.",
        refusals=(
            *_INVOICE,
            *_message(403, states.describe_locked("invoice", "deleted")),
            *_IN_CONSOLIDATED,
        ),
        more="Frees its code.",
    ),
    *_submissions("/api/invoices", "Invoices", "invoice", "cancel-latest-invoice-submitted"),
    Operation(
        "POST",
        "/api/invoices/{id}/adjustment-note",
        "Invoices",
        "Create an adjustment note for an invoice",
        "Created",
        201,
        "Adjustment note created.",
        "adjustment_note_create",
        refusals=(
            *_INVOICE,
            *_message(403, *(text for _, text in states.NOTE_REFUSALS)),
            *_NOTE_TAKEN,
        ),
        more="The latest submitted document of the invoice must be Valid.",
    ),
    Operation(
        "GET",
        "/api/invoices/{id}/export",
        "Invoices",
        "Export an invoice",
        "InvoiceExport",
        refusals=_INVOICE,
        file=True,
    ),
)

_NOTE = _not_found("Adjustment note")

ADJUSTMENT_NOTES = (
    Operation(
        "GET",
        "/api/adjustment-notes",
        "Adjustment notes",
        "List adjustment notes",
        "AdjustmentNoteList",
        query=(*PAGE, "note_type", *DOCUMENT_FILTERS),
        more="Newest first.",
    ),
    Operation(
        "GET",
        "/api/adjustment-notes/export-all",
        "Adjustment notes",
        "Export all adjustment notes",
        "AdjustmentNoteExports",
        file=True,
        more="Every note of the company, newest first, without pages.",
    ),
    Operation(
        "GET",
        "/api/adjustment-notes/{id}",
        "Adjustment notes",
        "Get an adjustment note",
        "AdjustmentNote",
        refusals=_NOTE,
        one=True,
    ),
    Operation(
        "PUT",
        "/api/adjustment-notes/{id}",
        "Adjustment notes",
        "Update an adjustment note",
        "Success",
        says="Adjustment note updated.",
        body="adjustment_note_update",
        refusals=(
            *_NOTE,
            *_message(403, states.describe_locked("adjustment note", "updated")),
            *_NOTE_TAKEN,
        ),
        more="Sent members replace stored ones.",
    ),
    Operation(
        "DELETE",
        "/api/adjustment-notes/{id}",
        "Adjustment notes",
        "Delete an adjustment note",
        "Message",
        says="Adjustment note deleted.",
        refusals=(*_NOTE, *_message(403, states.describe_locked("adjustment note", "deleted"))),
        more="Frees its code.",
    ),
    *_submissions(
        "/api/adjustment-notes",
        "Adjustment notes",
        "adjustment note",
        "cancel-latest-adjustment-note-submitted",
        _failed(states.NOTE_WITHOUT_VALID_INVOICE),
    ),
    Operation(
        "GET",
        "/api/adjustment-notes/{id}/export",
        "Adjustment notes",
        "Export an adjustment note",
        "AdjustmentNoteExport",
        refusals=_NOTE,
        file=True,
    ),
)

_CONSOLIDATED = _not_found("Consolidated invoice")

CONSOLIDATED_INVOICES = (
    Operation(
        "POST",
        "/api/consolidated-invoices",
        "Consolidated invoices",
        "Create a consolidated invoice",
        "Created",
        201,
        "Consolidated invoice created.",
        "consolidated_invoice_create",
        refusals=(
            *_violation("/month", "empty", "No invoice of 2026-01 is left to consolidate."),
            *_violation(
                "/code",
                "unique",
                "The code has already been used by a consolidated invoice this year.",
            ),
        ),
        more="From all eligible invoices of a month, or from named ones.",
    ),
    Operation(
        "POST",
        "/api/consolidated-invoices/plan",
        "Consolidated invoices",
        "Plan a consolidated invoice",
        "ConsolidationPlan",
        body="consolidated_invoice_plan",
        more="Returns its contents, and the invoices left out with the reasons. Changes nothing.",
    ),
    Operation(
        "GET",
        "/api/consolidated-invoices",
        "Consolidated invoices",
        "List consolidated invoices",
        "ConsolidatedInvoiceList",
        query=(*PAGE, "consolidated_type", *DOCUMENT_FILTERS),
        more="Newest first.",
    ),
    Operation(
        "GET",
        "/api/consolidated-invoices/export-all",
        "Consolidated invoices",
        "Export all consolidated invoices",
        "ConsolidatedInvoiceExports",
        file=True,
    ),
    Operation(
        "GET",
        "/api/consolidated-invoices/{id}",
        "Consolidated invoices",
        "Get a consolidated invoice",
        "ConsolidatedInvoice",
        refusals=_CONSOLIDATED,
        one=True,
    ),
    Operation(
        "DELETE",
        "/api/consolidated-invoices/{id}",
        "Consolidated invoices",
        "Delete a consolidated invoice",
        "Success",
        says="Consolidated invoice deleted.",
        refusals=(
            *_CONSOLIDATED,
            *_message(403, states.describe_locked("consolidated invoice", "deleted")),
        ),
        more="Frees its code and its invoices.",
    ),
    *_submissions(
        "/api/consolidated-invoices",
        "Consolidated invoices",
        "consolidated invoice",
        "cancel-latest-invoice-submitted",
    ),
    Operation(
        "POST",
        "/api/consolidated-invoices/{id}/adjustment-note",
        "Consolidated invoices",
        "Create an adjustment note for a consolidated invoice",
        "Created",
        201,
        "Adjustment note created.",
        "adjustment_note_create",
        refusals=(
            *_CONSOLIDATED,
            *_message(403, *(text for _, text in states.NOTE_REFUSALS)),
            *_NOTE_TAKEN,
        ),
    ),
    Operation(
        "GET",
        "/api/consolidated-invoices/{id}/export",
        "Consolidated invoices",
        "Export a consolidated invoice",
        "ConsolidatedInvoiceExport",
        refusals=_CONSOLIDATED,
        file=True,
    ),
)


def _failures(status: int, *texts: str) -> tuple[Refusal, ...]:
    return tuple(Refusal(status, "Failure", text) for text in texts)


VALIDATIONS = (
    Operation(
        "POST",
        "/api/validation/tin",
        "Validations",
        "Validate a TIN",
        "Validity",
        body="validation_tin",
        surface=VALIDATION,
        refusals=(
            *_failures(
                400,
                "Invalid registration type",
                "TIN is required when only registration number is provided",
                "TIN or registration number is required",
            ),
            Refusal(
                400,
                "Failure",
                {
                    "success": False,
                    "message": states.TIN_NOT_VERIFIED["message"],
                    "code": _TIN_CODE,
                },
            ),
            Refusal(404, "PortalError"),
            *_failures(429, "Too many TIN checks, please slow down."),
            *_failures(503, "The portal cannot be asked at the moment, please try again."),
        ),
        more="Asks the portal. A TIN that it does not know is a 404 with the portal's error body.",
    ),
    Operation(
        "POST",
        "/api/validation/invoice-code",
        "Validations",
        "Check an invoice code",
        "CodeIsFree",
        body="validation_invoice_code",
        surface=VALIDATION,
        more="Returns whether it is free in the current year.",
    ),
    Operation(
        "POST",
        "/api/validation/adjustment-note-code",
        "Validations",
        "Check an adjustment note code",
        "CodeIsFree",
        body="validation_adjustment_note_code",
        surface=VALIDATION,
        refusals=_failures(400, "Invalid adjustment note type"),
        more="Returns whether it is free among the notes of its type.",
    ),
)

_CERTIFICATE = _not_found("Signing certificate")

COMPANIES = (
    Operation(
        "GET", "/api/companies", "Company", "Get the company of the key", "CompanyAnswer", one=True
    ),
    Operation(
        "PUT",
        "/api/companies",
        "Company",
        "Update the company of the key",
        "CompanyAnswer",
        body="company_update",
        refusals=(
            *_message(
                409,
                "The TIN cannot be changed while documents are being submitted or validated. "
                "Please try again when the portal has validated them.",
            ),
            Refusal(409, "TinTaken", CONSTRAINTS["companies_tin_once"]().body),
        ),
        more="Sent members replace stored ones; `setting` is replaced as a whole. "
        "A TIN belongs to one company. A changed TIN is unverified: until the operator of the "
        "service verifies it, submissions, cancellations and TIN checks are a 400 with the code "
        "tin_not_verified.",
    ),
    Operation(
        "GET",
        "/api/companies/signing-certificate",
        "Company",
        "Get the certificate that signs the company's documents",
        "SigningCertificateAnswer",
        refusals=_CERTIFICATE,
        one=True,
    ),
    Operation(
        "PUT",
        "/api/companies/signing-certificate",
        "Company",
        "Store a certificate and its private key",
        "SigningCertificateAnswer",
        body="signing_certificate_update",
        refusals=(
            *_violation("/key", "match", "key is not the private key of the certificate."),
            *_message(
                409,
                "The service cannot store private keys: SECRET_KEY is not set. Ask the operator.",
            ),
        ),
        more="Replaces the previous ones. The key is stored encrypted and never returned.",
    ),
    Operation(
        "DELETE",
        "/api/companies/signing-certificate",
        "Company",
        "Remove the certificate and its private key",
        "Success",
        says="Signing certificate removed.",
        refusals=_CERTIFICATE,
    ),
)

_REQUEST = _not_found("E-invoice request")

EINVOICE_REQUESTS = (
    Operation(
        "GET",
        "/api/einvoice-requests",
        "E-invoice requests",
        "List e-invoice requests",
        "EinvoiceRequestList",
        query=(*PAGE, "request_status", "query", "sort_by_id"),
        more="Newest first.",
    ),
    Operation(
        "POST",
        "/api/einvoice-requests",
        "E-invoice requests",
        "Create an e-invoice request",
        "Created",
        201,
        "E-invoice request created.",
        "einvoice_request_create",
    ),
    Operation(
        "GET",
        "/api/einvoice-requests/{id}",
        "E-invoice requests",
        "Get an e-invoice request",
        "EinvoiceRequest",
        refusals=_REQUEST,
        one=True,
    ),
    Operation(
        "PUT",
        "/api/einvoice-requests/{id}",
        "E-invoice requests",
        "Update, approve or reject an e-invoice request",
        "RequestUpdated",
        says="E-invoice request updated.",
        body="einvoice_request_update",
        refusals=(
            *_REQUEST,
            *_IN_CONSOLIDATED,
            *_message(
                409,
                "The invoice code matches several invoices that are pending finalization. "
                "Update the intended invoice instead.",
            ),
        ),
        more="Approving a request that names a pending-finalize invoice makes its buyer the buyer "
        "of that invoice, and finalizes the invoice.",
    ),
    Operation(
        "DELETE",
        "/api/einvoice-requests/{id}",
        "E-invoice requests",
        "Delete an e-invoice request",
        "Success",
        says="E-invoice request deleted.",
        refusals=_REQUEST,
    ),
)

_WEBHOOK = _not_found("Webhook")
_NO_SECRET_KEY = "The service cannot store secrets: SECRET_KEY is not set. Ask the operator."

EVENTS = (
    Operation(
        "GET",
        "/api/events",
        "Events",
        "List events",
        "EventList",
        query=("after", "limit", "types"),
        more="In order. `meta.next_after` is the `after` of the next page.",
    ),
    Operation(
        "GET",
        "/api/webhooks",
        "Webhooks",
        "List webhooks",
        "WebhookList",
        query=PAGE,
        more="Newest first.",
    ),
    Operation(
        "POST",
        "/api/webhooks",
        "Webhooks",
        "Create a webhook",
        "WebhookCreated",
        201,
        "Webhook created.",
        "webhook_create",
        refusals=_message(409, "A company can have at most 20 webhooks.", _NO_SECRET_KEY),
        more="Deliveries are signed as Standard Webhooks. The secret is returned only here.",
    ),
    Operation(
        "GET",
        "/api/webhooks/{id}",
        "Webhooks",
        "Get a webhook",
        "Webhook",
        refusals=_WEBHOOK,
        one=True,
    ),
    Operation(
        "PUT",
        "/api/webhooks/{id}",
        "Webhooks",
        "Update a webhook",
        "Success",
        says="Webhook updated.",
        body="webhook_update",
        refusals=_WEBHOOK,
    ),
    Operation(
        "DELETE",
        "/api/webhooks/{id}",
        "Webhooks",
        "Delete a webhook",
        "Success",
        says="Webhook deleted.",
        refusals=_WEBHOOK,
    ),
    Operation(
        "POST",
        "/api/webhooks/{id}/rotate-secret",
        "Webhooks",
        "Replace the secret of a webhook",
        "WebhookSecret",
        says="Secret rotated.",
        body="webhook_action",
        refusals=(*_WEBHOOK, *_message(409, _NO_SECRET_KEY)),
    ),
    Operation(
        "GET",
        "/api/webhooks/{id}/deliveries",
        "Webhooks",
        "List the deliveries of a webhook",
        "WebhookDeliveryList",
        query=(*PAGE, "delivery_status"),
        refusals=_WEBHOOK,
        more="Newest first.",
    ),
    Operation(
        "POST",
        "/api/webhooks/{id}/deliveries/{delivery_id}/redeliver",
        "Webhooks",
        "Deliver an event again",
        "Success",
        says="The event will be delivered again.",
        body="webhook_action",
        refusals=(
            *_WEBHOOK,
            *_not_found("Delivery"),
            *_message(409, "The webhook is disabled; enable it first."),
        ),
    ),
)


def _integration(
    method: str, path: str, summary: str, answers: str, noun: str = "", **rest: Any
) -> Operation:
    """Return an operation of the integration surface. `noun` is the subject of its 404."""
    refusals = (Refusal(404, "IntegrationError", f"{noun} not found"),) if noun else ()
    refusals += rest.pop("refusals", ())
    return Operation(
        method,
        f"/api/integrations/{path}",
        "Integrations",
        summary,
        answers,
        surface=INTEGRATION,
        refusals=refusals,
        **rest,
    )


_USED = "The e-mail address is already in use."
_EMAIL_TAKEN = (
    Refusal(
        409,
        "IntegrationError",
        {
            "error": "Conflict",
            "message": _USED,
            "details": {"errors": [{"path": "/email", "rule": "unique", "message": _USED}]},
        },
    ),
)

INTEGRATIONS = (
    _integration("GET", "users", "List users", "IntegrationUserList", query=("query", *PAGE)),
    _integration(
        "POST",
        "users",
        "Create a user",
        "IntegrationUser",
        status=201,
        body="integration_user_create",
        refusals=_EMAIL_TAKEN,
    ),
    _integration("GET", "users/{id}", "Get a user", "IntegrationUser", "User", one=True),
    _integration(
        "PUT",
        "users/{id}",
        "Update a user",
        "IntegrationUser",
        "User",
        body="integration_user_update",
        refusals=_EMAIL_TAKEN,
    ),
    _integration(
        "GET",
        "users/{id}/organizations",
        "List the organizations of a user",
        "IntegrationMemberships",
        "User",
    ),
    _integration(
        "GET",
        "organizations",
        "List organizations",
        "IntegrationOrganizationList",
        query=("query", *PAGE),
    ),
    _integration(
        "GET",
        "organizations/{id}",
        "Get an organization",
        "IntegrationOrganization",
        "Organization",
        one=True,
    ),
    _integration(
        "PUT",
        "organizations/{id}",
        "Update an organization",
        "IntegrationOrganization",
        "Organization",
        body="integration_organization_update",
        refusals=_EMAIL_TAKEN,
    ),
)


def _open(path: str, summary: str, answers: str, **rest: Any) -> Operation:
    return Operation("GET", path, "Service", summary, answers, surface=OPEN, **rest)


_STARTING = {
    "status": "starting",
    "overdue": {},
    "needs_person": None,
    "findings": None,
    "held": None,
    "credentials_refused": None,
    "oldest": None,
}
SERVICE = (
    _open("/healthz", "Get the liveness of the process", "Health"),
    _open(
        "/readyz",
        "Get the readiness of the service",
        "Readiness",
        refusals=(
            Refusal(503, "Readiness", _STARTING),
            *_message(503, "The service is not available for a moment, please try again."),
        ),
    ),
    _open("/metrics", "Get the metrics for Prometheus", "text/plain"),
    _open("/api/openapi.json", "Get this description", "Description", one=True),
    _open("/api/docs", "Get a page that renders this description", "text/html"),
    _open("/api/docs/docs.js", "Get the script of the page", "text/javascript"),
    _open("/api/docs/docs.css", "Get the style sheet of the page", "text/css"),
)

OPERATIONS = (
    *INVOICES,
    *ADJUSTMENT_NOTES,
    *CONSOLIDATED_INVOICES,
    *VALIDATIONS,
    *COMPANIES,
    *EINVOICE_REQUESTS,
    *EVENTS,
    *INTEGRATIONS,
    *SERVICE,
)
