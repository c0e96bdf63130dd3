"""Responses and refusals: JSON with exact decimals, the portal's error forms. Portal: 8"""

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

#: Writes JSON. Decimals are numbers with all their digits.
encode = msgspec.json.Encoder(decimal_format="number").encode

Body = dict[str, Any]


def answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=encode(value), status=status, headers=headers, content_type="application/json"
    )


def detail(
    code: str | None,
    message: str,
    target: str | None = None,
    path: str | None = None,
    details: list[Body] | None = None,
) -> Body:
    """Return one entry of `details`, also the error in `rejectedDocuments`. Portal: 4.2, 8.1"""
    return {
        "code": code,
        "message": message,
        "target": target,
        "propertyPath": path,
        "details": details,
    }


class Refusal(Exception):
    """Ends a request with an error, whose body is in the transport dialect."""

    def __init__(self, status: int, body: Body, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body)
        self.status, self.body, self.headers = status, body, headers


def refusal(
    status: int,
    code: str,
    message: str | None,
    target: str | None = None,
    details: list[Body] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Refusal:
    """Return a refusal with the portal's usual error. Portal: 8.1"""
    error = {"code": code, "message": message, "target": target, "details": details}
    return Refusal(status, {"error": error}, headers)


def in_standard(body: Body) -> Body:
    """Return an error of `refusal` in the standard dialect. Portal: 8.2

    Other bodies, of a failed login or an unknown taxpayer, are returned unchanged.
    """
    error = body.get("error")
    if not isinstance(error, dict):
        return body
    inner = [standard_error(each, each["message"]) for each in error["details"] or ()]
    standard = standard_error({**error, "target": None}, error["message"], inner or None)
    malay = standard.pop("errorMs")  # The casing differs from that in validation results.
    return {"error": {**standard, "errorMS": malay, "target": error["target"]}}


def standard_error(error: Body, malay: str | None, inner: list[Body] | None = None) -> Body:
    """Return an error of `detail` in the standard dialect. Portal: 5.2, 8.2"""
    return {
        "propertyName": error["target"],
        "propertyPath": error.get("propertyPath"),
        "errorCode": error["code"],
        "error": error["message"],
        "errorMs": malay,
        "innerError": inner,
    }


def mismatch(status: int) -> Refusal:
    """Return the refusal of documents that the token's taxpayer did not issue. Portal: 4.3"""
    message = "The authenticated TIN and documents TIN is not matching "  # the portal's own blank
    if status == 403:
        return refusal(status, "IncorrectSubmitter", message, "submission")
    return Refusal(status, {"error": detail("ValidationError", message, "submission")})


def login_refusal(code: str, description: str) -> Refusal:
    """Return an OAuth error, whose `error` is text. Portal: 2.2"""
    return Refusal(400, {"error": code, "error_description": description})


def unknown_taxpayer() -> Refusal:
    """Return the problem details of the portal's web framework. Portal: 3.1, 8.3"""
    problem = {
        "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
        "title": "Not Found",
        "status": 404,
        "traceId": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
    }
    return Refusal(404, problem)


def refusal_with_detail(status: int, code: str, message: str, target: str) -> Refusal:
    """Return a refusal that has its code and message also in its only detail."""
    return refusal(status, code, message, target, [detail(code, message, target)])


def bad_argument(target: str, message: str) -> Refusal:
    """Return the refusal of an invalid parameter. Portal: 8.1"""
    entry = detail("BadArgument", message, target)
    return refusal(400, "BadArgument", "The parameter is not valid.", target, [entry])


def not_found(what: str, target: str | None) -> Refusal:
    return refusal(404, "NotFound", f"The requested {what} was not found.", target)
