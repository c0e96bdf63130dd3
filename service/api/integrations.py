"""Users and organizations of an integration key's account. Spec: Integration surface"""

import re
from functools import partial
from typing import Any

from aiohttp import web

from service import json_codec, schema
from service.api import filters, pagination
from service.api.operation import Operation
from service.db.connections import Connection
from service.db.statements import Statement, sql
from service.errors import CONSTRAINTS, ValidationError, Violation, violation
from service.http import app_keys, responses
from service.http.api_keys import random_text
from service.http.idempotency import store_response
from service.http.requests import check_if_match, or_not_found, read_body, read_text_id

operations: list[Operation] = []
operation = partial(Operation, operations, "Integrations")

USER, ORGANIZATION = "User", "Organization"
USER_ID = re.compile(r"usr_[0-9A-Za-z]{22}", re.ASCII)
ORGANIZATION_ID = re.compile(r"org_[0-9A-Za-z]{22}", re.ASCII)
FILTERS = (filters.SEARCH,)
EMAIL_USED = CONSTRAINTS["integration_users_email_once"]()


def new_user_id() -> str:
    """Return a new random id of a user."""
    return f"usr_{random_text(22)}"


def new_organization_id() -> str:
    """Return a new random id of an organization."""
    return f"org_{random_text(22)}"


@operation(
    "GET",
    "/api/integrations/users",
    "List users",
    "IntegrationUserList",
    query=(*FILTERS, *pagination.PAGE),
    description="The users of the account, newest first.",
)
async def list_users(request: web.Request) -> web.Response:
    """Return a page of users."""
    return await _list(request, sql.integration_user_page)


@operation(
    "POST",
    "/api/integrations/users",
    "Create a user",
    "IntegrationUser",
    status=201,
    body="integration_user_create",
    errors=(EMAIL_USED,),
    description="The e-mail address must be new in the account. The response is the record.",
)
async def create_user(request: web.Request) -> web.Response:
    """Create a user, and return the record.

    An e-mail address of another user of the account violates integration_users_email_once.
    """
    body, _ = await read_body(request, "integration_user_create")
    account, user_id = request[app_keys.ACCOUNT], new_user_id()
    async with request.app[app_keys.DATABASE].account(account) as conn:
        await sql.integration_user_insert(conn, account_id=account, id=user_id, **body)
        record = await sql.integration_user_get(conn, account_id=account, id=user_id)
        response = responses.json_text_response(record, 201)
        await store_response(request, conn, response)
    return response


@operation(
    "GET",
    "/api/integrations/users/{id}",
    "Get a user",
    "IntegrationUser",
    description="The role is that in the account, not in an organization.",
    noun=USER,
    is_record=True,
)
async def get_user(request: web.Request) -> web.Response:
    """Return a user."""
    account, user_id = request[app_keys.ACCOUNT], read_text_id(request, USER, USER_ID)
    record = await request.app[app_keys.READS].read(
        sql.integration_user_get, account_id=account, id=user_id
    )
    return responses.record_response(request, or_not_found(record, USER))


@operation(
    "PUT",
    "/api/integrations/users/{id}",
    "Update a user",
    "IntegrationUser",
    body="integration_user_update",
    errors=(EMAIL_USED,),
    description="Only sent members change. The response is the record.",
    noun=USER,
)
async def update_user(request: web.Request) -> web.Response:
    """Change the sent fields, and return the record. See create_user for the e-mail address."""
    body, _ = await read_body(request, "integration_user_update")
    key = {"account_id": request[app_keys.ACCOUNT], "id": read_text_id(request, USER, USER_ID)}
    changes = {"name": body.get("name"), "email": body.get("email")}
    async with request.app[app_keys.DATABASE].account(request[app_keys.ACCOUNT]) as conn:
        or_not_found(await sql.integration_user_lock(conn, **key), USER)
        await check_if_match(request, conn, sql.integration_user_get, **key)
        await sql.integration_user_update(conn, **key, **changes)
        return responses.json_text_response(await sql.integration_user_get(conn, **key))


@operation(
    "GET",
    "/api/integrations/users/{id}/organizations",
    "List the organizations of a user",
    "IntegrationMemberships",
    description="All organizations of which the user is a member, without pages.",
    noun=USER,
)
async def list_user_organizations(request: web.Request) -> web.Response:
    """Return all organizations of a user. The list has no pages, so `count` equals `total`."""
    account, user_id = request[app_keys.ACCOUNT], read_text_id(request, USER, USER_ID)
    row = or_not_found(
        await request.app[app_keys.READS].read(
            sql.integration_user_organizations, account_id=account, id=user_id
        ),
        USER,
    )
    return _with_meta(row["data"], {"total": row["total"], "count": row["total"]})


@operation(
    "GET",
    "/api/integrations/organizations",
    "List organizations",
    "IntegrationOrganizationList",
    query=(*FILTERS, *pagination.PAGE),
    description="The organizations of the account, newest first.",
)
async def list_organizations(request: web.Request) -> web.Response:
    """Return a page of organizations."""
    return await _list(request, sql.organization_page)


@operation(
    "GET",
    "/api/integrations/organizations/{id}",
    "Get an organization",
    "IntegrationOrganization",
    description="With its companies and its members.",
    noun=ORGANIZATION,
    is_record=True,
)
async def get_organization(request: web.Request) -> web.Response:
    """Return an organization."""
    account = request[app_keys.ACCOUNT]
    organization_id = read_text_id(request, ORGANIZATION, ORGANIZATION_ID)
    record = await request.app[app_keys.READS].read(
        sql.organization_get, account_id=account, id=organization_id
    )
    return responses.record_response(request, or_not_found(record, ORGANIZATION))


@operation(
    "PUT",
    "/api/integrations/organizations/{id}",
    "Update an organization",
    "IntegrationOrganization",
    body="integration_organization_update",
    errors=(EMAIL_USED,),
    description="Only sent members change; `members` replaces all members. The response is the "
    "record.",
    noun=ORGANIZATION,
)
async def update_organization(request: web.Request) -> web.Response:
    """Change the sent fields, and return the record. `members` replaces all members.

    Raises ValidationError for a member who is not a user of the account, or is listed twice.
    """
    body, text = await read_body(request, "integration_organization_update")
    account = request[app_keys.ACCOUNT]
    organization_id = read_text_id(request, ORGANIZATION, ORGANIZATION_ID)
    key = {"account_id": account, "id": organization_id}
    async with request.app[app_keys.DATABASE].account(account) as conn:
        or_not_found(await sql.organization_lock(conn, **key), ORGANIZATION)
        await check_if_match(request, conn, sql.organization_get, **key)
        await sql.organization_update(conn, **key, body=text)
        if "members" in body:
            await _replace_members(conn, account, organization_id, body["members"])
        return responses.json_text_response(await sql.organization_get(conn, **key))


async def _replace_members(
    conn: Connection, account: int, organization_id: str, members: list[dict[str, Any]]
) -> None:
    users = [member["userId"] for member in members]
    unknown = await sql.organization_members_unknown(conn, account_id=account, users=users)
    violations = [
        _member_violation(row["place"], "exists", "is not a user of this account")
        for row in unknown
    ]
    repeated = [place for place, user in enumerate(users) if users.index(user) < place]
    violations += [_member_violation(place, "unique", "is listed twice") for place in repeated]
    if violations:
        raise ValidationError(violations[: schema.MAX_VIOLATIONS])
    roles = [member.get("role") for member in members]
    await sql.organization_members_put(
        conn, account_id=account, id=organization_id, users=users, roles=roles
    )


def _member_violation(place: int, rule: str, message: str) -> Violation:
    return violation(f"/members/{place}/userId", rule, f"userId {message}.")


async def _list(request: web.Request, statement: Statement) -> web.Response:
    page = pagination.read_page(request, FILTERS)
    row = await request.app[app_keys.READS].read(
        statement,
        account_id=request[app_keys.ACCOUNT],
        per_page=page.per_page,
        offset=page.offset,
        **page.filters,
    )
    return _with_meta(row["data"], page.window(row["total"]))


def _with_meta(data: str, meta: dict[str, Any]) -> web.Response:
    return responses.json_text_response(f'{{"data":{data},"meta":{json_codec.dumps(meta)}}}')
