"""Users and organizations of an integration key's account. Spec: Integration surface"""

import re
from contextlib import AbstractAsyncContextManager
from functools import partial

from aiohttp import web

from service import json_codec
from service.api import filters, pagination
from service.api.operation import Group
from service.api.records import lock_record
from service.db.connections import Connection
from service.db.statements import Result, Statement, sql
from service.errors import CONSTRAINTS, reject, violation
from service.http import app_keys, responses
from service.http.api_keys import random_text
from service.http.idempotency import store_response
from service.http.requests import get_text, not_found, or_not_found, read_path_part
from service.json_types import JsonObject

operation = GROUP = Group("Integrations")

USER, ORGANIZATION = "User", "Organization"
#: Noun -> the start of an id.
PREFIXES = {USER: "usr", ORGANIZATION: "org"}
FILTERS = (filters.search_for("a part of the name, or of the e-mail address of a user"),)
EMAIL_USED = CONSTRAINTS["integration_users_email_once"]()
WRONG_USERS = {"exists": "is not a user of this account", "unique": "is listed twice"}


def new_id(noun: str) -> str:
    return f"{PREFIXES[noun]}_{random_text(22)}"


def _read_id(request: web.Request, noun: str) -> str:
    """Return the id of the record that the path names. Raises NotFound."""
    text = read_path_part(request, "id")
    if not re.fullmatch(f"{PREFIXES[noun]}_[0-9A-Za-z]{{22}}", text, re.ASCII):
        raise not_found(noun)
    return text


def _declare_reading(
    noun: str, page: Statement, get: Statement, summary: str, description: str
) -> None:
    """Declare the operations that list and get records. The texts are those of the second one."""
    name, schema_name = noun.lower(), f"Integration{noun}"
    path = f"/api/integrations/{name}s"
    operation(
        f"GET {path}",
        f"List {name}s",
        f"{schema_name}List",
        query=(*FILTERS, *pagination.PAGE),
        description=f"The {name}s of the account, newest first.",
        name=f"list_{name}s",
    )(partial(_list, page))
    operation(
        f"GET {path}/{{id}}",
        summary,
        schema_name,
        description=description,
        noun=noun,
        is_record=True,
        name=f"get_{name}",
    )(partial(_get, noun, get))


async def _list(statement: Statement, request: web.Request) -> web.Response:
    page = pagination.read_page(request, FILTERS)
    row = await request.app[app_keys.READS].read(
        statement,
        account_id=request[app_keys.ACCOUNT],
        per_page=page.per_page,
        offset=page.offset,
        **page.filters,
    )
    return _with_meta(row["data"], page.window(row["total"]))


def _with_meta(data: str, meta: JsonObject) -> web.Response:
    return responses.json_text_response(f'{{"data":{data},"meta":{json_codec.dumps(meta)}}}')


async def _get(noun: str, statement: Statement, request: web.Request) -> web.Response:
    return responses.record_response(request, await _read(noun, statement, request))


def _transaction(request: web.Request) -> AbstractAsyncContextManager[Connection]:
    return request.app[app_keys.DATABASE].account(request[app_keys.ACCOUNT])


async def _read(noun: str, statement: Statement, request: web.Request) -> Result:
    """Return the result of a statement for the record of the path. Raises NotFound."""
    key = {"account_id": request[app_keys.ACCOUNT], "id": _read_id(request, noun)}
    return or_not_found(await request.app[app_keys.READS].read(statement, **key), noun)


_declare_reading(
    USER,
    sql.integration_user_page,
    sql.integration_user_get,
    "Get a user",
    "The role is that in the account, not in an organization.",
)


@operation(
    "POST /api/integrations/users",
    "Create a user",
    "IntegrationUser",
    body="integration_user_create",
    errors=(EMAIL_USED,),
    description="The e-mail address must be new in the account. The response is the record.",
)
async def create_user(request: web.Request, body: JsonObject) -> web.Response:
    user_id = new_id(USER)
    async with _transaction(request) as conn:
        await sql.integration_user_insert(conn, id=user_id, **body)
        record = await sql.integration_user_get(conn, id=user_id)
        response = responses.json_text_response(record, 201)
        await store_response(request, conn, response)
    return response


@operation(
    "PUT /api/integrations/users/{id}",
    "Update a user",
    "IntegrationUser",
    body="integration_user_update",
    errors=(EMAIL_USED,),
    description="Only sent members change. The response is the record.",
    noun=USER,
)
async def update_user(request: web.Request, body: JsonObject) -> web.Response:
    user_id = _read_id(request, USER)
    changes = {"name": body.get("name"), "email": body.get("email")}
    async with _transaction(request) as conn:
        await lock_record(request, conn, "integration_user", USER, user_id)
        await sql.integration_user_update(conn, id=user_id, **changes)
        return responses.json_text_response(await sql.integration_user_get(conn, id=user_id))


@operation(
    "GET /api/integrations/users/{id}/organizations",
    "List the organizations of a user",
    "IntegrationMemberships",
    description="All organizations of which the user is a member, without pages.",
    noun=USER,
)
async def list_user_organizations(request: web.Request) -> web.Response:
    row = await _read(USER, sql.integration_user_organizations, request)
    return _with_meta(row["data"], {"total": row["total"], "count": row["total"]})


_declare_reading(
    ORGANIZATION,
    sql.organization_page,
    sql.organization_get,
    "Get an organization",
    "With its companies and its members.",
)


@operation(
    "PUT /api/integrations/organizations/{id}",
    "Update an organization",
    "IntegrationOrganization",
    body="integration_organization_update",
    description="Only sent members change; `members` replaces all members. The response is the "
    "record.",
    noun=ORGANIZATION,
)
async def update_organization(request: web.Request, body: JsonObject) -> web.Response:
    text = get_text(request)
    organization_id = _read_id(request, ORGANIZATION)
    async with _transaction(request) as conn:
        await lock_record(request, conn, "organization", ORGANIZATION, organization_id)
        await sql.organization_update(conn, id=organization_id, body=text)
        if "members" in body:
            await _replace_members(conn, organization_id, body["members"])
        return responses.json_text_response(await sql.organization_get(conn, id=organization_id))


async def _replace_members(
    conn: Connection, organization_id: str, members: list[JsonObject]
) -> None:
    """Raise ValidationError for a member who is no user of the account, or is listed twice."""
    users = [member["userId"] for member in members]
    wrong = await sql.organization_members_wrong(conn, users=users)
    found = [(f"/members/{row['place']}/userId", row["rule"]) for row in wrong]
    reject([violation(path, rule, f"userId {WRONG_USERS[rule]}.") for path, rule in found])
    roles = [member.get("role") for member in members]
    await sql.organization_members_put(conn, id=organization_id, users=users, roles=roles)
