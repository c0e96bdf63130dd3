"""The body of a webhook delivery in the OpenAPI description, with examples."""

from service import schema
from service.api.components import Components, refer_to
from service.json_types import JsonObject

#: State in the type of an event -> end of the sentence that describes the event.
STATES = {
    "created": "was created.",
    "updated": "was changed.",
    "deleted": "was deleted.",
    "submitting": "is being submitted to the portal.",
    "submitted": "was accepted by the portal, which is validating it.",
    "valid": "was found valid by the portal.",
    "invalid": "was found invalid by the portal.",
    "cancelled": "was cancelled at the portal.",
    "rejected": "was rejected by the portal.",
    "not_sent": "was not sent, or was not received by the portal.",
}
#: Key of the example of a delivery to a webhook with `include_record`.
WITH_RECORD = "invoice.valid with its record"


def describe_body(components: Components) -> JsonObject:
    """Return the body of a delivery, with an example of each type of event."""
    media = {
        "schema": components.describe(refer_to("WebhookPayload")),
        "examples": {
            **{kind: _describe_event(kind) for kind in schema.get_values("event_type")},
            WITH_RECORD: _describe_event_with_record(components),
        },
    }
    return {"required": True, "content": {"application/json": media}}


def _describe_event(kind: str) -> JsonObject:
    subject, state = kind.split(".")
    noun = subject.replace("einvoice", "e-invoice").replace("_", " ")
    return {
        "summary": f"The {noun} {STATES.get(state, 'has changed.')}",
        "value": {
            "type": kind,
            "timestamp": "2026-03-02T01:31:10.502+00:00",
            "data": {f"{subject}_id": 42},
        },
    }


def _describe_event_with_record(components: Components) -> JsonObject:
    """Return the example of a delivery that includes the record, from the records' own examples."""
    invoice, document = (
        components.make_example(components.describe(refer_to(name)))
        for name in ("Invoice", "SubmittedDocument")
    )
    event = _describe_event("invoice.valid")
    ids = {"invoice_id": invoice["id"], "submitted_document_id": document["id"]}
    return {
        "summary": f"{event['summary'][:-1]}; the webhook has `include_record`.",
        "value": {
            **event["value"],
            "data": {**ids, "status": document["status"]},
            "record": invoice,
            "submitted_document": document,
            "record_omitted": None,
        },
    }
