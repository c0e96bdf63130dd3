"""Responses and refusals: JSON with exact decimals, the portal's error forms. Portal: 8"""

import json
import secrets
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from aiohttp import web


def encode(value: Any) -> str:
    """Return JSON text. Decimals are written digit by digit, without conversion to float."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        members = ", ".join(f"{json.dumps(key)}: {encode(item)}" for key, item in value.items())
        return f"{{{members}}}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(encode, value)) + "]"
    return json.dumps(value)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=encode(value).encode(), status=status, headers=headers, content_type="application/json"
    )


def detail(
    code: str | None,
    message: str,
    target: str | None = None,
    path: str | None = None,
    details: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return one entry of `details`, also the error in `rejectedDocuments`. Portal: 4.2, 8.1"""
    return {
        "code": code,
        "message": message,
        "target": target,
        "propertyPath": path,
        "details": details,
    }


class Refusal(Exception):
    """Ends a request with an error. `body` returns it in the error dialect of the sandbox."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str | None,
        target: str | None = None,
        details: list[dict[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.target = status, code, message, target
        self.details, self.headers = details, headers

    def body(self, dialect: str) -> dict[str, Any]:
        """Return the response body."""
        if dialect == "standard":
            return {"error": self.in_standard()}
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "target": self.target,
                "details": self.details,
            }
        }

    def in_standard(self) -> dict[str, Any]:
        """Return the error in the standard dialect."""
        inner = [
            {
                "propertyName": each["target"],
                "propertyPath": None,
                "errorCode": each["code"],
                "error": each["message"],
                "errorMs": each["message"],
                "innerError": None,
            }
            for each in self.details or ()
        ]
        return {
            "propertyName": None,
            "propertyPath": None,
            "errorCode": self.code,
            "error": self.message,
            "errorMS": self.message,
            "target": self.target,
            "innerError": inner or None,
        }


class Mismatch(Refusal):
    """The token's taxpayer did not issue the documents. Portal: 4.3"""

    MESSAGE = "The authenticated TIN and documents TIN is not matching "  # the portal's own blank

    def __init__(self, status: int) -> None:
        code = "IncorrectSubmitter" if status == 403 else "ValidationError"
        super().__init__(status, code, self.MESSAGE, "submission")

    def body(self, dialect: str) -> dict[str, Any]:
        body = super().body(dialect)
        return body if self.status == 403 else {"error": {**body["error"], "propertyPath": None}}


class LoginRefusal(Refusal):
    """An OAuth error, whose `error` is text. Portal: 2.2"""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(400, code, description)

    def body(self, dialect: str) -> dict[str, Any]:
        return {"error": self.code, "error_description": self.message}


class UnknownTaxpayer(Refusal):
    """Problem details, as the portal's web framework returns them. Portal: 3.1, 8.3"""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "Not Found")

    def body(self, dialect: str) -> dict[str, Any]:
        return {
            "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
            "title": "Not Found",
            "status": 404,
            "traceId": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
        }


def refusal_with_detail(status: int, code: str, message: str, target: str) -> Refusal:
    """Return a refusal that has its code and message also in its only detail."""
    return Refusal(status, code, message, target, [detail(code, message, target)])


def bad_argument(target: str, message: str) -> Refusal:
    """Return the refusal of an invalid parameter. Portal: 8.1"""
    entry = detail("BadArgument", message, target)
    return Refusal(400, "BadArgument", "The parameter is not valid.", target, [entry])


def not_found(what: str, target: str | None) -> Refusal:
    """Return the refusal of a request for something unknown."""
    return Refusal(404, "NotFound", f"The requested {what} was not found.", target)
