"""The webhook of the OpenAPI description: the request that the service sends to an endpoint."""

from service import schema
from service.api.components import Components, Json, describe_header, refer_to

#: It differs from the tags of operations: generators make one class per tag.
TAG = "Webhook deliveries"
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
#: Request header -> (description, example). Standard Webhooks 1.0.
HEADERS = {
    "webhook-id": (
        "Identifies the event. It is the same in all attempts and redeliveries: use it to ignore "
        "repetitions.",
        "evt_42",
    ),
    "webhook-timestamp": (
        "The time of the attempt, in Unix seconds. Reject requests that are minutes old.",
        "1772415071",
    ),
    "webhook-signature": (
        "Signatures, separated by blanks; one of them must be correct. Each is `v1,` and the "
        "Base64 form of the HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`. The key is "
        "the Base64-decoded secret without its prefix `whsec_`.",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}
RESPONSES: Json = {
    "2XX": {"description": "The event was received. The body is ignored."},
    "410": {"description": "The endpoint no longer exists. The webhook is disabled."},
    "default": {"description": "The event was not received. It is delivered again later."},
}


#: Key of the example of a delivery to a webhook with `include_record`.
WITH_RECORD = "invoice.valid with its record"


def describe_webhooks(components: Components) -> Json:
    """Return {name: the request that delivers an event}, with an example of each type of event."""
    media = {
        "schema": components.describe(refer_to("WebhookPayload")),
        "examples": {
            **{kind: _describe_event(kind) for kind in schema.get_values("event_type")},
            WITH_RECORD: _describe_event_with_record(components),
        },
    }
    delivery = {
        "tags": [TAG],
        "operationId": "receiveEvent",
        "summary": "Receive an event",
        "description": "The service sends each event to the webhooks of the company that receive "
        "its type, signed as Standard Webhooks. Delivery is at least once. A webhook with "
        "`ordered` receives events in the order of the feed, except for repetitions.",
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in HEADERS],
        "security": [],
        "requestBody": {"required": True, "content": {"application/json": media}},
        "responses": RESPONSES,
    }
    return {"event": {"post": delivery}}


def describe_webhook_headers() -> Json:
    """Return {component: parameter} of the headers of every delivery."""
    return {
        name: {
            **describe_header(name, text, {"type": "string"}),
            "required": True,
            "example": example,
        }
        for name, (text, example) in HEADERS.items()
    }


def _describe_event(kind: str) -> Json:
    """Return the example of a type of event."""
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


def _describe_event_with_record(components: Components) -> Json:
    """Return the example of a delivery that includes the record, from the records' own examples."""
    invoice, document = (
        components.resolve(components.describe(refer_to(name)))["examples"][0]
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
