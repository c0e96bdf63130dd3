"""The OpenAPI description matches the service: paths, schemas, examples, responses and page."""

import json
import re
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from service import json_codec, schema
from service.api import filters, pagination
from service.api.components import component_name
from service.api.openapi import describe
from service.api.openapi_webhooks import WITH_RECORD
from service.api.operation import QueryParameter
from service.api.table import OPERATIONS, describe_api
from service.app import create_app
from service.config import read_config
from service.errors import CODES
from service.http.idempotency import LONGEST_KEY
from service.http.middleware import OPEN
from service.webhooks import signature
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import create_integration_records, open_integrations
from tests.conftest import Client
from tests.harness.bodies import invoice, note
from tests.harness.paths import ROOT

API = json.loads(describe_api())


def routes() -> set[tuple[str, str]]:
    """Return (METHOD, path) of every route, without the pages of the dashboard."""
    router = create_app(read_config({}), background=False).router
    return {
        (route.method, route.resource.canonical)
        for route in router.routes()
        if route.method not in ("HEAD", "OPTIONS")
        and route.resource
        and (route.resource.canonical.startswith("/api/") or route.resource.canonical in OPEN)
    }


def iterate_objects(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path, value) of every object within a description."""
    if isinstance(part, dict):
        yield path, part
        for name, member in part.items():
            yield from iterate_objects(member, f"{path}/{name}")
    elif isinstance(part, list):
        for index, member in enumerate(part):
            yield from iterate_objects(member, f"{path}/{index}")


def resolve_reference(reference: str) -> Any:
    part: Any = API
    for name in reference.removeprefix("#/").split("/"):
        part = part[name.replace("~1", "/").replace("~0", "~")]
    return part


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    return resolve_reference(part["$ref"]) if "$ref" in part else part


def violations(schema_part: dict[str, Any], value: Any) -> list[str]:
    """Return how a value violates a schema of the description."""
    validator = Draft202012Validator({**schema_part, "components": API["components"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def operations() -> list[dict[str, Any]]:
    return [operation for methods in API["paths"].values() for operation in methods.values()]


def test_exactly_the_routes_are_described() -> None:
    described = {(method.upper(), path) for path in API["paths"] for method in API["paths"][path]}
    assert routes() == described


def test_every_body_has_its_schema_and_an_example() -> None:
    bodies = {operation.body for operation in OPERATIONS if operation.body}
    assert bodies - schema.ALL.keys() == set(), "schema files that are missing"
    assert bodies == schema.EXAMPLES.keys(), "bodies without an example, or the other way round"


def test_operations_are_unique() -> None:
    places = [(operation.method, operation.path) for operation in OPERATIONS]
    names = [operation["operationId"] for operation in operations()]
    assert len(set(places)) == len(places)
    assert len(set(names)) == len(names)


def test_every_reference_resolves() -> None:
    references = {
        part["$ref"] for _, part in iterate_objects(API) if isinstance(part.get("$ref"), str)
    }
    assert references
    for reference in references:
        assert reference.startswith("#/"), reference
        assert isinstance(resolve_reference(reference), dict), reference


def test_every_component_is_a_schema() -> None:
    for name, component in API["components"]["schemas"].items():
        Draft202012Validator.check_schema(component)
        assert "$id" not in component, name


def test_every_operation_is_well_formed() -> None:
    for path, methods in API["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        for _method, operation in methods.items():
            parameters = [resolve(parameter) for parameter in operation.get("parameters", [])]
            assert {each["name"] for each in parameters if each["in"] == "path"} == named, path
            assert len({(each["name"], each["in"]) for each in parameters}) == len(parameters), path
            assert operation["summary"] and operation["tags"], path
            assert any(status.startswith("2") for status in operation["responses"]), path
            assert all(
                resolve(response)["description"] for response in operation["responses"].values()
            ), path
            schemes = {name for names in operation["security"] for name in names}
            assert schemes <= API["components"]["securitySchemes"].keys()
            assert bool(schemes) == (path not in OPEN), path


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation["operationId"])
def test_examples_pass_their_schemas(operation: dict[str, Any]) -> None:
    contents = [operation.get("requestBody", {}), *map(resolve, operation["responses"].values())]
    for content in contents:
        for media in content.get("content", {}).values():
            examples = [example["value"] for example in media.get("examples", {}).values()]
            for example in [*examples, *([media["example"]] if "example" in media else [])]:
                assert violations(media["schema"], example) == []


def test_examples_of_records_pass_their_schemas() -> None:
    for name, component in API["components"]["schemas"].items():
        for example in component.get("examples", ()):
            assert violations(component, example) == [], name


@pytest.mark.parametrize("parameter", pagination.PAGE, ids=lambda parameter: parameter.name)
def test_pages_have_the_described_limits(parameter: QueryParameter) -> None:
    low, high = parameter.schema["minimum"], parameter.schema["maximum"]
    for number, is_valid in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        found: list[Any] = []
        filters.read_filters({parameter.name: str(number)}, [parameter], UTC, found)
        assert (found == []) == is_valid, number


async def call(
    api: Client, method: str, path: str, template: str, **request: Any
) -> tuple[int, Any]:
    """Send a request, check the response against its description and return (status, body)."""
    async with api.request(method, path, **request) as response:
        status, text = response.status, await response.read()
        operation = API["paths"][template][method.lower()]
        assert str(status) in operation["responses"], (status, text)
        declared = resolve(operation["responses"][str(status)])
        ours = API["components"]["headers"].keys() & response.headers.keys()
        assert ours <= declared["headers"].keys()
        if "content" not in declared:
            assert not text
            return status, None
        (media_type,) = declared["content"]
        assert response.content_type == media_type
        body = json.loads(text)
        assert violations(declared["content"][media_type]["schema"], body) == []
        return status, body


async def test_lists_accept_the_described_parameters(
    api: Client, environment: dict[str, str]
) -> None:
    await open_integrations(api, environment)
    for operation in OPERATIONS:
        if pagination.PER_PAGE not in operation.query or "{" in operation.path:
            continue
        parameters = {parameter.name: parameter for parameter in operation.query}
        assert parameters.keys() >= {"page", "per_page"}, operation.path
        for name, parameter in parameters.items():
            accepted = resolve(parameter.schema)
            for value in accepted.get("enum", ["1" if name.endswith("page") else ""]):
                path = f"{operation.path}?{name}={value}"
                assert (await call(api, "GET", path, operation.path))[0] == 200, path
            if "enum" in accepted:
                path = f"{operation.path}?{name}=unknown"
                status, body = await call(api, "GET", path, operation.path)
                assert status == 422
                message = f"{name} must be one of {', '.join(accepted['enum'])}."
                assert body["message"] == message, path


def assert_closed(body: dict[str, Any], name: str) -> None:
    """Assert that the schema names every member of a body."""
    assert set(body) <= set(API["components"]["schemas"][name]["properties"]), name


async def test_responses_match_the_description(api: Client) -> None:
    invoices, one = "/api/invoices", "/api/invoices/{id}"
    status, answer = await call(api, "POST", invoices, invoices, json=invoice())
    assert status == 201
    invoice_id = answer["data"]["id"]
    given = await call(api, "POST", invoices, invoices, json=invoice(submitImmediately=True))
    assert given[0] == 201
    too_old = invoice(submitImmediately=True, issueDateTime="2024-01-01T00:00Z")
    assert (await call(api, "POST", invoices, invoices, json=too_old))[0] == 201
    status, page = await call(api, "GET", f"{invoices}?status=Draft&per_page=1&sort=code", invoices)
    assert_closed(page["meta"], "ListMeta")
    status, answer = await call(api, "GET", f"{invoices}/{invoice_id}", one)
    assert_closed(answer, "Invoice")
    assert (await call(api, "PUT", f"{invoices}/{invoice_id}", one, json={"isReady": True}))[
        0
    ] == 200
    assert (
        await call(
            api,
            "POST",
            f"{invoices}/{invoice_id}/submit-to-portal",
            f"{one}/submit-to-portal",
            json={},
        )
    )[0] == 200
    status, found = await call(
        api, "GET", f"{invoices}/{invoice_id}/submitted-documents", f"{one}/submitted-documents"
    )
    assert_closed(found[0], "SubmittedDocument")
    status, export = await call(api, "GET", f"{invoices}/{invoice_id}/export", f"{one}/export")
    assert_closed(export, "InvoiceExport")
    assert (await call(api, "GET", f"{invoices}/export-all", f"{invoices}/export-all"))[0] == 200


async def test_responses_on_notes_match_the_description(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    place, one = f"/api/invoices/{invoice_id}/adjustment-note", "/api/adjustment-notes/{id}"
    status, answer = await call(
        api, "POST", place, "/api/invoices/{id}/adjustment-note", json=note()
    )
    assert status == 201
    path = f"/api/adjustment-notes/{answer['data']['id']}"
    assert_closed((await call(api, "GET", path, one))[1], "AdjustmentNote")
    assert_closed(
        (await call(api, "GET", f"{path}/export", f"{one}/export"))[1], "AdjustmentNoteExport"
    )
    assert (await call(api, "GET", "/api/adjustment-notes", "/api/adjustment-notes"))[0] == 200
    found = await call(api, "POST", f"{path}/submit-to-portal", f"{one}/submit-to-portal")
    assert found[0] == 200
    assert (await call(api, "DELETE", path, one))[0] == 403


async def test_refusals_match_the_description(api: Client) -> None:
    taken = invoice(issueDateTime="2024-01-01T00:00:00Z")
    invoice_id = await create_invoice(api, **taken)
    one = f"/{invoice_id}"
    broken = {"data": b"{", "headers": {"Content-Type": "application/json"}}
    cases = (
        (400, "POST", f"{one}/submit-to-portal", {"json": {}}),
        (400, "POST", "", broken),
        (401, "GET", "", {"headers": {"X-API-Key": "wrong"}}),
        (403, "POST", f"{one}/cancel-latest-invoice-submitted", {}),
        (403, "POST", f"{one}/adjustment-note", {"json": note()}),
        (404, "GET", f"/{10**18}", {}),
        (412, "PUT", one, {"json": {}, "headers": {"If-Match": '"another"'}}),
        (415, "POST", "", {"data": "text"}),
        (422, "POST", "", {"json": {"type": "INVOICE", "lineItem": []}}),
        (422, "POST", "", {"json": taken}),
        (422, "GET", "?page=0", {}),
    )
    for status, method, place, request in cases:
        path = f"/api/invoices{place}"
        template = re.sub(r"/[0-9]+", "/{id}", path).partition("?")[0]
        assert (await call(api, method, path, template, **request))[0] == status, (method, path)


def test_only_operations_on_a_record_with_an_etag_have_if_match() -> None:
    for path, methods in API["paths"].items():
        for method in methods.keys() & {"put", "delete"}:
            has_tag = "304" in methods.get("get", {"responses": {}})["responses"]
            names = {resolve(each)["name"] for each in methods[method].get("parameters", ())}
            assert ("412" in methods[method]["responses"]) == has_tag, (method, path)
            assert ("If-Match" in names) == has_tag, (method, path)


def test_only_users_have_a_described_conflict_of_e_mail_addresses() -> None:
    conflicts = {
        operation["operationId"]
        for operation in operations()
        if "email_taken" in json.dumps(operation["responses"].get("409", {}))
    }
    assert conflicts == {"createUser", "updateUser"}


async def test_events_accept_all_types_as_described(api: Client) -> None:
    types = ",".join(schema.get_values("event_type"))
    described = API["paths"]["/api/events"]["get"]["parameters"]
    (parameter,) = [each for each in described if each.get("name") == "types"]
    assert violations(parameter["schema"], types.split(",")) == []
    path = f"/api/events?types={types}"
    assert (await call(api, "GET", path, "/api/events"))[0] == 200


async def test_a_conditional_get_returns_304_as_described(api: Client) -> None:
    path = f"/api/invoices/{await create_invoice(api)}"
    async with api.get(path) as response:
        etag = response.headers["ETag"]
    assert await call(api, "GET", path, "/api/invoices/{id}", headers={"If-None-Match": etag}) == (
        304,
        None,
    )


async def test_integration_responses_match_the_description(
    api: Client, environment: dict[str, str]
) -> None:
    account = await open_integrations(api, environment)
    ids = await create_integration_records(api, environment, account)
    for place, invoice_id in ids.items():
        path, one = f"{place}/{invoice_id}", f"{place}/{{id}}"
        async with api.get(path) as response:
            etag = response.headers["ETag"]
        assert (await call(api, "GET", path, one))[0] == 200
        assert await call(api, "GET", path, one, headers={"If-None-Match": etag}) == (304, None)
        for status in (200, 412):
            request = {"json": {"name": "Siti"}, "headers": {"If-Match": etag}}
            assert (await call(api, "PUT", path, one, **request))[0] == status
    users = "/api/integrations/users"
    for name, status in (("Siti", 201), ("Siti", 201), ("Aminah", 422)):
        body = {"name": name, "email": "siti@example.com", "role": "member"}
        found = await call(api, "POST", users, users, json=body, headers={"Idempotency-Key": "a"})
        assert found[0] == status
    assert (await call(api, "POST", users, users, json=body))[0] == 409
    assert (await call(api, "POST", users, users, headers={"Idempotency-Key": "x" * 256}))[0] == 400


async def test_the_description_is_public_and_complete(api: Client) -> None:
    async with api.get("/api/openapi.json", headers={"X-API-Key": ""}) as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        assert await response.json() == API


async def test_the_documentation_page_loads_nothing_external(api: Client) -> None:
    page = await _text(api, "/api/docs", "text/html")
    program = await _text(api, "/api/docs/docs.js", "text/javascript")
    style = await _text(api, "/api/docs/docs.css", "text/css")
    reached = set(re.findall(r'(?:src|href)="(/[^"]*)"', page))
    assert reached == {"/api/docs/docs.css", "/api/docs/docs.js", "/api/openapi.json"}
    for text in (page, program, style):
        assert "//" not in re.sub(r"(?m)^\s*//.*$", "", text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", program
    )


async def test_the_documentation_page_forbids_inline_scripts(api: Client) -> None:
    async with api.get("/api/docs") as response:
        policy = dict(
            part.strip().split(" ", 1)
            for part in response.headers["Content-Security-Policy"].split(";")
        )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"


def iterate_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, schema) of every schema of the description, also within other schemas."""
    roots = list(API["components"]["schemas"].items())
    for path, part in iterate_objects(API):
        if "/examples" not in path and "/example/" not in path and isinstance(part, dict):
            roots += [(path, part["schema"])] if isinstance(part.get("schema"), dict) else []
    while roots:
        place, found = roots.pop()
        yield place, found
        for name, member in found.get("properties", {}).items():
            roots.append((f"{place}.{name}", member))
        for keyword in ("allOf", "anyOf", "oneOf"):
            roots += [(f"{place} {keyword}", each) for each in found.get(keyword, ())]
        for keyword in ("items", "additionalProperties"):
            if isinstance(found.get(keyword), dict):
                roots.append((f"{place} {keyword}", found[keyword]))


def is_described(part: dict[str, Any]) -> bool:
    """Return whether a schema, or the component that it refers to, has a description."""
    parts = [resolve(part), *part.get("allOf", ()), *part.get("anyOf", ())]
    return any(resolve(each).get("description") for each in parts)


COMBINATORS = {"$ref", "allOf", "anyOf", "oneOf"}


def test_every_schema_has_a_type_or_combines_others() -> None:
    untyped = [place for place, found in iterate_schemas() if not {"type", *COMBINATORS} & {*found}]
    assert untyped == []


def test_every_reference_has_no_siblings_and_names_a_component() -> None:
    for place, found in iterate_schemas():
        if "$ref" in found:
            assert found.keys() == {"$ref"}, place
            name = found["$ref"].removeprefix("#/components/schemas/")
            assert name in API["components"]["schemas"], place


def test_schemas_are_flat() -> None:
    for place, found in iterate_schemas():
        assert not {"if", "then", "else", "not", "oneOf"} & found.keys(), place
        assert len(found.get("allOf", [1])) == 1, place


def test_objects_within_schemas_are_components() -> None:
    components = API["components"]["schemas"]
    for place, found in iterate_schemas():
        assert place in components or "properties" not in found, place
    names = {"Address", "Party", "Registration", "LineItem", "Unit", "TaxDetail", "TaxRate"}
    assert names | {"Payment", "Delivery", "BillingPeriod", "Reference"} <= components.keys()
    assert components["Party"]["properties"]["address"]["allOf"] == [
        {"$ref": "#/components/schemas/Address"}
    ]


def test_large_integers_have_64_bits() -> None:
    for place, found in iterate_schemas():
        if "integer" in found.get("type", ()) and found.get("maximum", 2**63) >= 2**31:
            assert found["format"] == "int64", place


def test_required_members_of_a_creation_are_visible() -> None:
    created = API["components"]["schemas"]["InvoiceCreate"]
    assert created["required"] == ["type", "code", "issueDateTime", "lineItems"]
    changes = API["components"]["schemas"]["InvoiceUpdate"]
    assert created["properties"].keys() == changes["properties"].keys()
    assert "required" not in changes
    assert created["additionalProperties"] is changes["additionalProperties"] is False


def test_conditions_between_members_are_described() -> None:
    components = API["components"]["schemas"]
    for name, member, sentence in (
        ("InvoiceCreate", "buyer", "An invoice with the type `INVOICE` must have one."),
        ("InvoiceUpdate", "buyer", "An invoice with the type `INVOICE` must have one."),
        ("InvoiceCreate", "exchangeRate", "Required in another currency than `MYR`."),
        ("Payment", "mode", "Required if `bankAccount` is present."),
        ("Prepayment", "date", "Required if `time` is present."),
        ("Reference", "description", "Required if `type` is `FTA`."),
    ):
        text = components[name]["properties"][member]["description"]
        assert text.endswith(f" {sentence}"), (name, member, text)
    for name, members in (
        ("ConsolidatedInvoiceCreate", "`invoiceIds` and `month`"),
        ("LineAdjustment", "`amount` and `rate`"),
    ):
        assert components[name]["description"].endswith(f"Exactly one of {members} is required.")


def test_everything_has_a_description() -> None:
    for name, component in API["components"]["schemas"].items():
        assert component.get("description"), name
    for place, found in iterate_schemas():
        for name, member in found.get("properties", {}).items():
            assert is_described(member), f"{place}.{name}"
    for operation in operations():
        assert operation.get("description"), operation["operationId"]
        for parameter in operation.get("parameters", ()):
            assert resolve(parameter).get("description"), operation["operationId"]
    deliveries = [methods["post"] for methods in API["webhooks"].values()]
    used = {tag for operation in (*operations(), *deliveries) for tag in operation["tags"]}
    assert used == {tag["name"] for tag in API["tags"]}
    assert API["components"]["parameters"]["Idempotency-Key"]["schema"]["maxLength"] == LONGEST_KEY


def test_operation_ids_are_verbs_with_an_object() -> None:
    ids = {operation["operationId"] for operation in operations()}
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]*)+", name) for name in ids)
    assert ids >= {
        *("createInvoice", "listInvoices", "getInvoice", "updateInvoice", "deleteInvoice"),
        *("submitInvoice", "cancelInvoice", "preflightInvoice", "submitAdjustmentNote"),
        *("createAdjustmentNoteOfInvoice", "cancelConsolidatedInvoice", "rotateWebhookSecret"),
    }


def test_deliveries_of_events_are_described() -> None:
    (delivery,) = [methods["post"] for methods in API["webhooks"].values()]
    headers = [resolve(parameter) for parameter in delivery["parameters"]]
    assert [header["name"] for header in headers] == list(signature.headers(1, 1, "{}", [b"key"]))
    assert all(header["in"] == "header" and header["required"] for header in headers)
    media = delivery["requestBody"]["content"]["application/json"]
    assert media["examples"].keys() == {*schema.get_values("event_type"), WITH_RECORD}
    for example in media["examples"].values():
        assert violations(media["schema"], example["value"]) == []
    # Generators make one class per tag.
    assert not {*delivery["tags"]} & {tag for each in operations() for tag in each["tags"]}


def test_the_payload_of_webhooks_describes_the_record() -> None:
    """Members, subjects and reasons are those of the guide and of the types of events."""
    payload = API["components"]["schemas"]["WebhookPayload"]
    guide = (ROOT / "docs" / "webhooks.md").read_text()
    members = re.findall(r"^\| `(\w+)` \|", guide.partition("three more members")[2], re.MULTILINE)
    assert list(payload["properties"]) == ["type", "timestamp", "data", *members[:3]]
    assert not {*members[:3]} & {*payload["required"]}
    described = {
        part["$ref"].rpartition("/")[2]
        for part in payload["properties"]["record"]["anyOf"]
        if "$ref" in part
    }
    subjects = {kind.partition(".")[0] for kind in schema.get_values("event_type")}
    assert described == {component_name(subject) for subject in subjects}
    example = API["webhooks"]["event"]["post"]["requestBody"]["content"]["application/json"][
        "examples"
    ][WITH_RECORD]["value"]
    assert example["data"]["invoice_id"] == example["record"]["id"]
    for reason in ("deleted", "too_large"):
        found = {**example, "record": None, "submitted_document": None, "record_omitted": reason}
        assert violations(payload, found) == []
    assert violations(payload, {**example, "record_omitted": "lost"}) != []


def test_errors_have_a_code_in_their_schemas() -> None:
    schemas = API["components"]["schemas"]
    assert schemas["ApiError"]["required"] == ["message", "code"]
    for operation in (each for each in operations() if each["security"]):
        for status, response in operation["responses"].items():
            media = resolve(response).get("content", {}).get("application/json")
            if status < "400" or not media:
                continue
            for each in media["schema"].get("anyOf", [media["schema"]]):
                code = resolve(each)["properties"]["code"]
                assert code["type"] == "string", (operation["operationId"], status)
                is_required = "code" in resolve(each)["required"]
                assert is_required == (status != "401"), (operation["operationId"], status)
    assert list(schemas["Unauthorized"]["properties"]) == ["message", "code"]


def test_codes_are_open_enumerations() -> None:
    """A generated client accepts codes that are newer than itself."""
    schemas = API["components"]["schemas"]
    assert schemas["ApiError"]["properties"]["code"]["x-extensible-enum"] == sorted(CODES)
    for place, found in iterate_schemas():
        code = found.get("properties", {}).get("code", {})
        assert not code.keys() & {"enum", "const"}, place


def test_names_of_shared_responses_follow_from_their_rule() -> None:
    """Other operations and errors do not change them, so that they are not numbered."""
    shared = API["components"]["responses"]
    assert shared.keys() >= {"Unauthorized", "InvoiceNotFound", "IntegrationRequestTimeout"}
    assert [name for name in shared if re.search(r"\d", name)] == []
    for start in (20, 50):
        some = describe(OPERATIONS[start:], schema.ALL, schema.EXAMPLES)["components"]["responses"]
        for name, response in json.loads(json_codec.dumps(some)).items():
            assert response == shared[name], name


def test_two_schemas_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Invoice"):
        describe((), {**schema.ALL, "invoice": {"type": "object"}}, {})


async def _text(api: Client, path: str, content_type: str) -> str:
    async with api.get(path, headers={"X-API-Key": ""}) as response:
        assert response.status == 200
        assert response.content_type == content_type
        assert "Content-Security-Policy" in response.headers
        return await response.text()
