"""The body of a webhook delivery in the OpenAPI description, with examples."""

from service import schema
from service.api.components import Components, refer_to
from service.json_types import JsonObject

#: Key of the example of a delivery to a webhook with `include_record`.
WITH_RECORD = "invoice.valid with its record"


def describe_body(components: Components) -> JsonObject:
    """Return the body of a delivery, with an example of each type of event."""
    invoice, document = (
        components.make_example(components.describe(refer_to(name)))
        for name in ("Invoice", "SubmittedDocument")
    )
    ids = {"invoice_id": invoice["id"], "submitted_document_id": document["id"]}
    whole = {
        **_make_delivery("invoice.valid", {**ids, "status": document["status"]}),
        "record": invoice,
        "submitted_document": document,
        "record_omitted": None,
    }
    deliveries = {
        kind: _make_delivery(kind, {f"{kind.partition('.')[0]}_id": 42})
        for kind in schema.get_values("event_type")
    }
    media = {
        "schema": components.describe(refer_to("WebhookPayload")),
        "examples": {
            title: {"summary": title, "value": value}
            for title, value in {**deliveries, WITH_RECORD: whole}.items()
        },
    }
    return {"required": True, "content": {"application/json": media}}


def _make_delivery(kind: str, data: JsonObject) -> JsonObject:
    return {"type": kind, "timestamp": "2026-03-02T01:31:10.502+00:00", "data": data}
