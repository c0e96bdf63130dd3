"""What the API offers: one row per method and path. A table, no I/O; openapi.py makes the description of it.

What a row does not say follows by rule from its surface, its method and its path, see openapi.py.
"""

from dataclasses import dataclass

from service.documents import states
from service.errors import CONSTRAINTS

COMPANY, VALIDATION, INTEGRATION, OPEN = "company", "validation", "integration", "open"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no success: its status, the schema of its body, and the body or its message."""

    status: int
    schema: str
    example: object = None
    title: str = ""  # of the example, where its message is another's too


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path.

    `answers` names the schema of a success in records.json, or is a media type; `says` is its message in the
    example. `body` is the file in schemas/ that the request is held against. `query` are names of QUERY.
    `one` marks an answer that is one record with an ETag, `file` one that is a file to download.
    """

    method: str
    path: str
    tag: str
    summary: str
    answers: str
    status: int = 200
    says: str = ""
    body: str = ""
    query: tuple = ()
    refusals: tuple = ()
    more: str = ""
    surface: str = COMPANY
    one: bool = False
    file: bool = False


def _message(status, *texts):
    return tuple(Refusal(status, "Message", text) for text in texts)


def _refused(*texts):
    return tuple(Refusal(400, "Refusal", text) for text in texts)


def _fault(path, rule, message):
    return (Refusal(422, "Faults", [(path, rule, message)]),)


PATH_PARAMETERS = {
    "id": {"$ref": "#/components/schemas/RecordId"},
    "submitted_document_id": {"$ref": "#/components/schemas/RecordId"},
    "delivery_id": {"$ref": "#/components/schemas/RecordId"},
}

SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
_INSTANT = {"$ref": "#/components/schemas/Instant"}

#: name -> (parameter, description, schema). Two lists may give one parameter different values.
QUERY = {
    "page": (
        "page",
        "A page past the end is empty.",
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
        "Text to look for: a code, a full code or a name.",
        {"type": "string", "maxLength": 300},
    ),
    "sort": (
        "sort",
        "A dash in front turns the order round.",
        {"enum": list(SORTS), "default": "-id"},
    ),
    "sort_by_id": (
        "sort",
        "A dash in front turns the order round.",
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
#: An empty one asks for nothing, as if it were not there.
FILTERS = {
    "status", "request_status", "invoice_type", "note_type", "consolidated_type", "issued_from", "issued_to", "query", "types",
    "delivery_status",
}  # fmt: skip
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
#: kind of a picture, the end of its path -> its media type
PICTURES = {"svg": "image/svg+xml", "png": "image/png"}
NO_LINK = "The {noun} is not valid at the portal, so it has no validation link."
STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."


def _not_found(noun):
    return _message(404, f"{noun} not found")


def _cancel_refusals(noun):
    return (
        *(
            Refusal(400, "Refusal", {"message": text, "code": code})
            for code, text in states.CANCEL_CODES.items()
        ),
        *_refused(states.CANCEL_FAILED),
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


def _submissions(place, tag, noun, cancelling, submit_refusals=()):
    """The rows that every document that can be submitted has."""
    title, article = noun.capitalize(), "an" if noun[0] in "aeiou" else "a"
    unknown = _not_found(title)
    documents = f"{place}/{{id}}/submitted-documents"
    return (
        Operation(
            "POST", f"{place}/{{id}}/preflight", tag, f"Ask what the portal would say of {article} {noun}", "PreflightAnswer",
            body="preflight", refusals=unknown,
            more="Sends nothing and changes nothing. `at` judges the document as if it were sent at that time.",
        ),
        Operation(
            "POST", f"{place}/{{id}}/submit-to-portal", tag, f"Submit {article} {noun} to the portal", "Success",
            says=states.SUBMITTED.format(noun=noun), body="submit",
            refusals=(*unknown, *SUBMIT_REFUSALS, *submit_refusals),
            more="Waits for the portal to take it. What is submitted already is not sent again. While the outcome of a "
            "submission is unknown the answer is a 400 and the document stays locked; a repeated request joins it.",
        ),
        Operation(
            "POST", f"{place}/{{id}}/{cancelling}", tag, "Cancel the latest submitted document", "Success",
            says="The submitted document has been cancelled.", body="cancel",
            refusals=(*unknown, *_cancel_refusals(noun)),
            more="Allowed for 72 hours after the submission. With the code `outcome_unknown` the portal gave no clear answer: "
            "the service asks until it is certain, `cancellation_requested_at` shows that it does, and a repeated request "
            "sends the cancellation again.",
        ),
        Operation(
            "GET", documents, tag, f"List the submitted documents of {article} {noun}", "SubmittedDocuments",
            refusals=unknown, more="All of them, newest first: each submission makes a new one.",
        ),
        Operation(
            "GET", f"{documents}/{{submitted_document_id}}", tag, "Get a submitted document", "SubmittedDocument",
            refusals=(*unknown, *_not_found("Submitted document")), one=True,
        ),
        Operation(
            "GET", f"{place}/{{id}}/print", tag, f"Print {article} {noun}", "text/html", refusals=unknown,
            more="A page for paper and screen, without scripts. Of a submitted document it shows what was sent, with the "
            "QR code of the validation link while it is Valid; any other is marked as a draft, not validated or cancelled.",
        ),
        *(_qr_code(f"{place}/{{id}}/qr.{kind}", tag, noun, answers, unknown) for kind, answers in PICTURES.items()),
    )  # fmt: skip


def _qr_code(path, tag, noun, answers, unknown):
    return Operation(
        "GET", path, tag, f"Get the QR code of the validation link as {answers.partition('/')[2][:3].upper()}", answers,
        refusals=(*unknown, *_message(404, NO_LINK.format(noun=noun))),
        more="There is one while the document is Valid.",
    )  # fmt: skip


_INVOICE = _not_found("Invoice")
_IN_CONSOLIDATED = _message(
    409, "The invoice is part of a consolidated invoice; delete or cancel that first."
)
_TAKEN = _fault("/code", "unique", "The code has already been used this year.")
_NOTE_TAKEN = _fault(
    "/adjustmentNoteCode", "unique", "The code has already been used by a note of this type."
)
_STORED = (
    "A document is submitted at once with `submitImmediately`, and by itself when it is ready and the company's settings "
    "say so. A submission that fails does not fail the request: `message` and `data` say how it went."
)

INVOICES = (
    Operation(
        "POST", "/api/invoices", "Invoices", "Create an invoice", "Stored", 201, "Invoice created.", "invoice_create",
        refusals=_TAKEN,
        more=_STORED,
    ),
    Operation(
        "GET", "/api/invoices", "Invoices", "List invoices", "InvoiceList",
        query=(*PAGE, "invoice_type", *DOCUMENT_FILTERS), more="Newest first.",
    ),
    Operation(
        "GET", "/api/invoices/export-all", "Invoices", "Export all invoices", "InvoiceExports", file=True,
        more="Every invoice of the company, newest first, without pages.",
    ),
    Operation("GET", "/api/invoices/{id}", "Invoices", "Get an invoice", "Invoice", refusals=_INVOICE, one=True),
    Operation(
        "PUT", "/api/invoices/{id}", "Invoices", "Update an invoice", "Stored", says="Invoice updated.", body="invoice_update",
        refusals=(*_INVOICE, *_message(403, states.locked_refusal("invoice", "updated")), *_IN_CONSOLIDATED, *_TAKEN),
        more=f"Members that are sent replace those that are stored. {_STORED}",
    ),
    Operation(
        "DELETE", "/api/invoices/{id}", "Invoices", "Delete an invoice", "Success", says="Invoice deleted.",
        refusals=(*_INVOICE, *_message(403, states.locked_refusal("invoice", "deleted")), *_IN_CONSOLIDATED),
        more="Its code is free again.",
    ),
    *_submissions("/api/invoices", "Invoices", "invoice", "cancel-latest-invoice-submitted"),
    Operation(
        "POST", "/api/invoices/{id}/adjustment-note", "Invoices", "Create an adjustment note for an invoice", "Created", 201,
        "Adjustment note created.", "adjustment_note_create",
        refusals=(
            *_INVOICE,
            *_message(403, *(text for _, text in states.NOTE_REFUSALS)),
            *_NOTE_TAKEN,
        ),
        more="The latest submitted document of the invoice must be Valid.",
    ),
    Operation(
        "GET", "/api/invoices/{id}/export", "Invoices", "Export an invoice", "InvoiceExport", refusals=_INVOICE, file=True,
    ),
)  # fmt: skip

_NOTE = _not_found("Adjustment note")

ADJUSTMENT_NOTES = (
    Operation(
        "GET", "/api/adjustment-notes", "Adjustment notes", "List adjustment notes", "AdjustmentNoteList",
        query=(*PAGE, "note_type", *DOCUMENT_FILTERS), more="Newest first.",
    ),
    Operation(
        "GET", "/api/adjustment-notes/export-all", "Adjustment notes", "Export all adjustment notes", "AdjustmentNoteExports",
        file=True, more="Every note of the company, newest first, without pages.",
    ),
    Operation(
        "GET", "/api/adjustment-notes/{id}", "Adjustment notes", "Get an adjustment note", "AdjustmentNote",
        refusals=_NOTE, one=True,
    ),
    Operation(
        "PUT", "/api/adjustment-notes/{id}", "Adjustment notes", "Update an adjustment note", "Success",
        says="Adjustment note updated.", body="adjustment_note_update",
        refusals=(*_NOTE, *_message(403, states.locked_refusal("adjustment note", "updated")), *_NOTE_TAKEN),
        more="Members that are sent replace those that are stored.",
    ),
    Operation(
        "DELETE", "/api/adjustment-notes/{id}", "Adjustment notes", "Delete an adjustment note", "Message",
        says="Adjustment note deleted.",
        refusals=(*_NOTE, *_message(403, states.locked_refusal("adjustment note", "deleted"))),
        more="Its code is free again.",
    ),
    *_submissions(
        "/api/adjustment-notes", "Adjustment notes", "adjustment note", "cancel-latest-adjustment-note-submitted",
        _refused(states.NOTE_WITHOUT_VALID_INVOICE),
    ),
    Operation(
        "GET", "/api/adjustment-notes/{id}/export", "Adjustment notes", "Export an adjustment note", "AdjustmentNoteExport",
        refusals=_NOTE, file=True,
    ),
)  # fmt: skip

_CONSOLIDATED = _not_found("Consolidated invoice")

CONSOLIDATED_INVOICES = (
    Operation(
        "POST", "/api/consolidated-invoices", "Consolidated invoices", "Create a consolidated invoice", "Created", 201,
        "Consolidated invoice created.", "consolidated_invoice_create",
        refusals=(
            *_fault("/month", "empty", "No invoice of 2026-01 is left to consolidate."),
            *_fault("/code", "unique", "The code has already been used by a consolidated invoice this year."),
        ),
        more="Of all invoices of a month that can be taken, or of chosen ones.",
    ),
    Operation(
        "POST", "/api/consolidated-invoices/plan", "Consolidated invoices", "Plan a consolidated invoice",
        "ConsolidationPlan", body="consolidated_invoice_plan",
        more="What would be taken and what is left out, with the reason for each. Changes nothing.",
    ),
    Operation(
        "GET", "/api/consolidated-invoices", "Consolidated invoices", "List consolidated invoices", "ConsolidatedInvoiceList",
        query=(*PAGE, "consolidated_type", *DOCUMENT_FILTERS), more="Newest first.",
    ),
    Operation(
        "GET", "/api/consolidated-invoices/export-all", "Consolidated invoices", "Export all consolidated invoices",
        "ConsolidatedInvoiceExports", file=True,
    ),
    Operation(
        "GET", "/api/consolidated-invoices/{id}", "Consolidated invoices", "Get a consolidated invoice", "ConsolidatedInvoice",
        refusals=_CONSOLIDATED, one=True,
    ),
    Operation(
        "DELETE", "/api/consolidated-invoices/{id}", "Consolidated invoices", "Delete a consolidated invoice", "Success",
        says="Consolidated invoice deleted.",
        refusals=(*_CONSOLIDATED, *_message(403, states.locked_refusal("consolidated invoice", "deleted"))),
        more="Its invoices are free again.",
    ),
    *_submissions(
        "/api/consolidated-invoices", "Consolidated invoices", "consolidated invoice", "cancel-latest-invoice-submitted"
    ),
    Operation(
        "POST", "/api/consolidated-invoices/{id}/adjustment-note", "Consolidated invoices",
        "Create an adjustment note for a consolidated invoice", "Created", 201, "Adjustment note created.",
        "adjustment_note_create",
        refusals=(*_CONSOLIDATED, *_message(403, *(text for _, text in states.NOTE_REFUSALS)), *_NOTE_TAKEN),
    ),
    Operation(
        "GET", "/api/consolidated-invoices/{id}/export", "Consolidated invoices", "Export a consolidated invoice",
        "ConsolidatedInvoiceExport", refusals=_CONSOLIDATED, file=True,
    ),
)  # fmt: skip


def _failures(status, *texts):
    return tuple(Refusal(status, "Failure", text) for text in texts)


VALIDATIONS = (
    Operation(
        "POST", "/api/validation/tin", "Validations", "Validate a TIN", "Validity", body="validation_tin", surface=VALIDATION,
        refusals=(
            *_failures(
                400, "Invalid registration type", "TIN is required when only registration number is provided",
                "TIN or registration number is required",
            ),
            Refusal(
                400, "Failure", {"success": False, "message": states.TIN_NOT_VERIFIED["message"], "code": _TIN_CODE}
            ),
            Refusal(404, "PortalError"),
            *_failures(429, "Too many TIN checks, please slow down."),
            *_failures(503, "The portal cannot be asked at the moment, please try again."),
        ),
        more="The portal is asked, and its answer given. A TIN that it does not know is a 404 with its own error body.",
    ),
    Operation(
        "POST", "/api/validation/invoice-code", "Validations", "Check an invoice code", "CodeIsFree",
        body="validation_invoice_code", surface=VALIDATION, more="Whether it is free in the current year.",
    ),
    Operation(
        "POST", "/api/validation/adjustment-note-code", "Validations", "Check an adjustment note code", "CodeIsFree",
        body="validation_adjustment_note_code", surface=VALIDATION, refusals=_failures(400, "Invalid adjustment note type"),
        more="Whether it is free among the notes of its type.",
    ),
)  # fmt: skip

_CERTIFICATE = _not_found("Signing certificate")

COMPANIES = (
    Operation("GET", "/api/companies", "Company", "Get the company of the key", "CompanyAnswer", one=True),
    Operation(
        "PUT", "/api/companies", "Company", "Update the company of the key", "CompanyAnswer", body="company_update",
        refusals=(
            *_message(
                409,
                "The TIN cannot be changed while documents are being submitted or validated, "
                "please try again when the portal has judged them.",
            ),
            Refusal(409, "TinTaken", CONSTRAINTS["companies_tin_once"]().body),
        ),
        more="Members that are sent replace those that are stored; `setting` is replaced whole. A TIN belongs to one "
        "company. One that is changed here is not verified: until the operator of the service has confirmed it, "
        "submissions, cancellations and TIN checks under it are a 400 with the code tin_not_verified.",
    ),
    Operation(
        "GET", "/api/companies/signing-certificate", "Company", "Get the certificate that signs the company's documents",
        "SigningCertificateAnswer", refusals=_CERTIFICATE, one=True,
    ),
    Operation(
        "PUT", "/api/companies/signing-certificate", "Company", "Store a certificate and its private key",
        "SigningCertificateAnswer", body="signing_certificate_update",
        refusals=(
            *_fault("/key", "match", "key is not the private key of the certificate."),
            *_message(409, "The service cannot keep a private key: its operator has set no SECRET_KEY."),
        ),
        more="In place of the one that was there. The key is stored encrypted, and no answer ever shows it.",
    ),
    Operation(
        "DELETE", "/api/companies/signing-certificate", "Company", "Remove the certificate and its private key", "Success",
        says="Signing certificate removed.", refusals=_CERTIFICATE,
    ),
)  # fmt: skip

_REQUEST = _not_found("E-invoice request")

EINVOICE_REQUESTS = (
    Operation(
        "GET", "/api/einvoice-requests", "E-invoice requests", "List e-invoice requests", "EinvoiceRequestList",
        query=(*PAGE, "request_status", "query", "sort_by_id"), more="Newest first.",
    ),
    Operation(
        "POST", "/api/einvoice-requests", "E-invoice requests", "Create an e-invoice request", "Created", 201,
        "E-invoice request created.", "einvoice_request_create",
    ),
    Operation(
        "GET", "/api/einvoice-requests/{id}", "E-invoice requests", "Get an e-invoice request", "EinvoiceRequest",
        refusals=_REQUEST, one=True,
    ),
    Operation(
        "PUT", "/api/einvoice-requests/{id}", "E-invoice requests", "Update, approve or reject an e-invoice request",
        "RequestUpdated", says="E-invoice request updated.", body="einvoice_request_update",
        refusals=(
            *_REQUEST,
            *_IN_CONSOLIDATED,
            *_message(
                409,
                "The invoice code names several invoices that wait to be finalised, please update the one that is meant.",
            ),
        ),
        more="Approving one that names a pending-finalize invoice makes its buyer the buyer of that invoice and finalises it.",
    ),
    Operation(
        "DELETE", "/api/einvoice-requests/{id}", "E-invoice requests", "Delete an e-invoice request", "Success",
        says="E-invoice request deleted.", refusals=_REQUEST,
    ),
)  # fmt: skip

_WEBHOOK = _not_found("Webhook")
_NO_SECRET_KEY = "The service cannot keep a secret: its operator has set no SECRET_KEY."

EVENTS = (
    Operation(
        "GET", "/api/events", "Events", "List events", "EventList", query=("after", "limit", "types"),
        more="In the order in which they happened. Go on with `meta.next_after` as `after`.",
    ),
    Operation("GET", "/api/webhooks", "Webhooks", "List webhooks", "WebhookList", query=PAGE, more="Newest first."),
    Operation(
        "POST", "/api/webhooks", "Webhooks", "Create a webhook", "WebhookCreated", 201, "Webhook created.", "webhook_create",
        refusals=_message(409, "A company has at most 20 webhooks.", _NO_SECRET_KEY),
        more="Deliveries are signed after Standard Webhooks, with the secret that is shown here once.",
    ),
    Operation("GET", "/api/webhooks/{id}", "Webhooks", "Get a webhook", "Webhook", refusals=_WEBHOOK, one=True),
    Operation(
        "PUT", "/api/webhooks/{id}", "Webhooks", "Update a webhook", "Success", says="Webhook updated.", body="webhook_update",
        refusals=_WEBHOOK,
    ),
    Operation(
        "DELETE", "/api/webhooks/{id}", "Webhooks", "Delete a webhook", "Success", says="Webhook deleted.", refusals=_WEBHOOK
    ),
    Operation(
        "POST", "/api/webhooks/{id}/rotate-secret", "Webhooks", "Replace the secret of a webhook", "WebhookSecret",
        says="Secret rotated.", body="webhook_action", refusals=(*_WEBHOOK, *_message(409, _NO_SECRET_KEY)),
    ),
    Operation(
        "GET", "/api/webhooks/{id}/deliveries", "Webhooks", "List the deliveries of a webhook", "WebhookDeliveryList",
        query=(*PAGE, "delivery_status"), refusals=_WEBHOOK, more="Newest first.",
    ),
    Operation(
        "POST", "/api/webhooks/{id}/deliveries/{delivery_id}/redeliver", "Webhooks", "Deliver once more", "Success",
        says="The event will be delivered again.", body="webhook_action",
        refusals=(*_WEBHOOK, *_not_found("Delivery"), *_message(409, "The webhook is disabled; enable it first.")),
    ),
)  # fmt: skip


def _integration(method, path, summary, answers, noun="", **rest):
    refusals = (Refusal(404, "IntegrationError", f"{noun} not found"),) if "{id}" in path else ()
    refusals += rest.pop("refusals", ())
    path = f"/api/integrations/{path}"
    return Operation(
        method,
        path,
        "Integrations",
        summary,
        answers,
        surface=INTEGRATION,
        refusals=refusals,
        **rest,
    )


_USED = "The e-mail address is already in use."
_EMAIL_TAKEN = (Refusal(409, "IntegrationError", {
    "error": "Conflict", "message": _USED, "details": {"errors": [{"path": "/email", "rule": "unique", "message": _USED}]}
}),)  # fmt: skip

INTEGRATIONS = (
    _integration("GET", "users", "List users", "IntegrationUserList", query=("query", *PAGE)),
    _integration(
        "POST", "users", "Create a user", "IntegrationUser", status=201, body="integration_user_create", refusals=_EMAIL_TAKEN
    ),
    _integration("GET", "users/{id}", "Get a user", "IntegrationUser", "User", one=True),
    _integration(
        "PUT", "users/{id}", "Update a user", "IntegrationUser", "User", body="integration_user_update", refusals=_EMAIL_TAKEN
    ),
    _integration("GET", "users/{id}/organizations", "List the organizations of a user", "IntegrationMemberships", "User"),
    _integration("GET", "organizations", "List organizations", "IntegrationOrganizationList", query=("query", *PAGE)),
    _integration("GET", "organizations/{id}", "Get an organization", "IntegrationOrganization", "Organization", one=True),
    _integration(
        "PUT", "organizations/{id}", "Update an organization", "IntegrationOrganization", "Organization",
        body="integration_organization_update", refusals=_EMAIL_TAKEN,
    ),
)  # fmt: skip


def _open(path, summary, answers, **rest):
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
    _open("/healthz", "Whether the process lives", "Health"),
    _open(
        "/readyz", "Whether the service can answer requests", "Readiness",
        refusals=(
            Refusal(503, "Readiness", _STARTING),
            *_message(503, "The service is not available for a moment, please try again."),
        ),
    ),
    _open("/metrics", "Figures of this process and of all work, for Prometheus", "text/plain"),
    _open("/api/openapi.json", "This description", "Description", one=True),
    _open("/api/docs", "A page that shows this description", "text/html"),
    _open("/api/docs/docs.js", "Its program", "text/javascript"),
    _open("/api/docs/docs.css", "Its looks", "text/css"),
)  # fmt: skip

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
