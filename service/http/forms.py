"""Reading of forms and of the numbers in them, in one place for all pages.

Type, charset, size and number of fields are checked before the fields are decoded. A form that no
page of the service could have sent is rejected.
"""

import re
from binascii import a2b_qp
from dataclasses import dataclass
from decimal import Decimal

from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from service.errors import BadRequest, TooLarge, UnsupportedMediaType
from service.http import app_keys
from service.http.requests import header, receive_body
from service.offload import offload

FormFields = MultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class FormLimits:
    """The size of a form in bytes, the number of its fields, and the characters of a field."""

    size: int
    fields: int
    characters: int


#: Forms of people without a session.
PUBLIC_FORM = FormLimits(64 * 1024, 100, 8_000)
#: Forms of people with a session, also one that has ended: 100 lines with texts of 300 characters,
#: or a certificate.
SESSION_FORM = FormLimits(1024 * 1024, 1_500, 40_000)
#: Forms that ask for a password and keep a SESSION_FORM in a field, whose escapes are escaped.
CARRIER_FORM = FormLimits(2 * SESSION_FORM.size, 20, SESSION_FORM.size)
NAME_CHARACTERS = 200
MOST_BYTES = 12  # of a character: four bytes of UTF-8, escaped
#: The fields of the request's form.
FORM = app_keys.FORM
NO_FORM: FormFields = MultiDictProxy(MultiDict())

NOT_TEXT = "The fields of the form must be UTF-8 without NUL characters."
_TYPE = re.compile(
    r'application/x-www-form-urlencoded\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?',
    re.ASCII | re.IGNORECASE,
)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: Commas separate groups of three digits: elsewhere one may be meant as the decimal point.
_DECIMAL = re.compile(r"-?([0-9]{1,20}|[0-9]{1,3}(,[0-9]{3}){1,6})(\.[0-9]{1,20})?", re.ASCII)


async def read_form(request: web.Request, limits: FormLimits) -> FormFields:
    """Return the fields of the request's form, which are then also in `request[FORM]`.

    Raises UnsupportedMediaType, TooLarge, RequestTimeout, BadRequest for invalid text, and Busy.
    """
    if FORM not in request:
        raw = b""
        if request.body_exists:
            if not _TYPE.fullmatch(header(request, "Content-Type") or ""):
                raise UnsupportedMediaType(
                    "The content type must be application/x-www-form-urlencoded in UTF-8."
                )
            raw = await receive_body(request, limits.size)
        request[FORM] = await offload(len(raw), parse_form, raw, limits)
    return request[FORM]


def parse_form(raw: bytes, limits: FormLimits) -> FormFields:
    """Return the fields of a form. Raises TooLarge and BadRequest."""
    if raw.count(b"&") >= limits.fields:
        raise TooLarge(f"The form must not have more than {limits.fields} fields.")
    if _BAD_ESCAPE.search(raw):
        raise BadRequest("The form has a percent sign that two hexadecimal digits do not follow.")
    fields = MultiDict[str]()
    for part in filter(None, raw.split(b"&")):
        name, _, text = part.partition(b"=")
        fields.add(_decode(name, NAME_CHARACTERS), _decode(text, limits.characters))
    return MultiDictProxy(fields)


def _decode(raw: bytes, most: int) -> str:
    """Return the text of a name or field.

    With another escape character it is quoted-printable, which the standard library decodes in C.
    """
    too_long = TooLarge(f"A field of the form must not have more than {most} characters.")
    if len(raw) > most * MOST_BYTES:
        raise too_long
    try:
        quoted = raw.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"=")
        text = a2b_qp(quoted).decode()
    except UnicodeDecodeError:
        raise BadRequest(NOT_TEXT) from None
    if len(text) > most:
        raise too_long
    if "\0" in text:
        raise BadRequest(NOT_TEXT)
    return text


def read_number(text: str, digits: int) -> int | None:
    """Return a natural number of at most `digits` digits, or None for another text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= digits
    return int(text) if is_number else None


def read_decimal(text: str) -> int | Decimal | str:
    """Return a number without its commas, or another text as it is: the API reports it."""
    if not _DECIMAL.fullmatch(text):
        return text
    number = Decimal(text.replace(",", ""))
    return int(number) if number == number.to_integral_value() else number
