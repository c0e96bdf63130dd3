"""Answers and refusals: JSON with exact decimals, and the portal's three shapes of an error. Portal: 8"""

import json
import secrets
from decimal import Decimal

from aiohttp import web


def encode(value):
    """JSON text. Decimals are written digit by digit, so that no binary float touches an amount."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)}: {encode(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(encode, value)) + "]"
    return json.dumps(value)


def answer(value, status=200, headers=None):
    return web.Response(
        body=encode(value).encode(), status=status, headers=headers, content_type="application/json"
    )


def detail(code, message, target=None, path=None, details=None):
    """One entry of `details`, also the shape inside `rejectedDocuments`. Portal: 4.2, 8.1"""
    return {
        "code": code,
        "message": message,
        "target": target,
        "propertyPath": path,
        "details": details,
    }


def standard(code, message, malay, name=None, path=None, inner=None):
    """The recursive error of validation steps. Portal: 5.2, 8.2"""
    return {
        "propertyName": name,
        "propertyPath": path,
        "errorCode": code,
        "error": message,
        "errorMs": malay,
        "innerError": inner,
    }


class Refusal(Exception):
    """Ends a call with an error. `body` gives it in the dialect the sandbox is set to."""

    def __init__(self, status, code, message, target=None, details=None, headers=None):
        super().__init__(message)
        self.status, self.code, self.message, self.target = status, code, message, target
        self.details, self.headers = details, headers

    def body(self, dialect):
        return {"error": self.in_standard() if dialect == "standard" else self.in_transport()}

    def in_transport(self):
        return {
            "code": self.code,
            "message": self.message,
            "target": self.target,
            "details": self.details,
        }

    def in_standard(self):
        details = self.details or ()
        inner = [
            standard(each["code"], each["message"], each["message"], each["target"])
            for each in details
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
    """The token's taxpayer did not issue the documents; the blank at the end is the portal's. Portal: 4.3"""

    MESSAGE = "The authenticated TIN and documents TIN is not matching "

    def __init__(self, status):
        code = "IncorrectSubmitter" if status == 403 else "ValidationError"
        super().__init__(status, code, self.MESSAGE, "submission")

    def in_transport(self):
        shape = super().in_transport()
        return shape if self.status == 403 else {**shape, "propertyPath": None}


class LoginRefusal(Refusal):
    """The OAuth error, where `error` is text. Portal: 2.2"""

    def __init__(self, code, description):
        super().__init__(400, code, description)

    def body(self, dialect):
        return {"error": self.code, "error_description": self.message}


class UnknownTaxpayer(Refusal):
    """Problem details, as the portal's framework makes them. Portal: 3.1, 8.3"""

    def __init__(self):
        super().__init__(404, "NotFound", "Not Found")

    def body(self, dialect):
        return {
            "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
            "title": "Not Found",
            "status": 404,
            "traceId": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
        }


def bad_argument(target, message):
    """Portal: 8.1"""
    entry = detail("BadArgument", message, target)
    return Refusal(400, "BadArgument", "The parameter is not valid.", target, [entry])


def not_found(what, target):
    return Refusal(404, "NotFound", f"The requested {what} was not found.", target)
