"""The doors of the dashboard, derived from the table of pages and from the forms they show."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

from aiohttp import web

from service import json_codec
from service.dashboard.repetition import KEY
from service.dashboard.table import pages
from service.http.tokens import make_token
from tests.growth.door import FIELD_LIMIT, HEADER_LIMIT, PUBLIC_LIMIT, SESSION_LIMIT, Door
from tests.growth.installation import Installation, Request
from tests.growth.operations import list_path_doors, list_query_shapes, make_text
from tests.growth.shapes import ASCII_PIECES, PIECES, Make, repeat
from tests.harness.bodies import example

FORM_TYPE = "application/x-www-form-urlencoded"
#: Codecs whose work grows with the square of the text, or expands it.
CHARSETS = ("punycode", "idna", "utf-7", "unicode_escape", "utf-16")
#: Pieces of fields of forms that need a session, and of those that everyone can send.
SESSION_PIECES = ("marks", "blanks")
PUBLIC_PIECES = (*SESSION_PIECES, "letters", "expanding", "brackets", "mixed")
#: Pieces of the parameters of pages.
TARGET_PIECES = ("blanks", "quotes")
#: Forms that have all shapes. One module reads all forms, so that the others have EVERY_FORM only.
WHOLE_FORMS = ("/sign-in", "/settings/profile")
EVERY_FORM = ("many members", "escapes", "charset punycode")
KINDS = ("invoices", "notes", "consolidated")
#: Parts of paths after which a form is sent without the token of its session, since it would end
#: what further forms need.
ENDING = "sign-out delete leave remove revoke rotate submit cancel disable"
#: The size of a stored document.
STORED_LIMIT = json_codec.MOST_STORED_BYTES - 2_000
#: Fields of forms that no page of the installation shows, since it has no record in their state.
FURTHER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "/account/links-seen": ("until",),
    "/companies": ("company",),
    "/consolidated/plan": ("month", "type", "code"),
    "/settings/certificate/remove": (),
    "/settings/portal/credentials/remove": (),
    # A page shows it of a disabled webhook.
    "/settings/webhooks/{id}/enable": (),
    # A page shows it once the webhook has a delivery, which is made in the background.
    "/settings/webhooks/{id}/deliveries/{delivery_id}/redeliver": (),
    **{f"/{kind}/{{id}}/links/{{link_id}}/revoke": () for kind in KINDS},
    **{f"/{kind}/{{id}}/cancel": ("reason",) for kind in KINDS},
    "/consolidated/{id}/links": ("purpose",),
    "/consolidated/{id}/note": ("/type", "/lineItems/0/description", "/lineItems/0/origin"),
    "/consolidated/{id}/submit": ("resubmit",),
    "/consolidated/{id}/delete": (),
}


@dataclass(slots=True)
class Form:
    """A form as a page shows it: where it goes to, and its fields with their present values."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict[str, str])


class _Forms(HTMLParser):
    """Collects the forms of a page."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a form, or a field of the form that was opened last."""
        given = {name: text or "" for name, text in attrs}
        if tag == "form":
            action = given.get("action", self._path).partition("?")[0]
            self.forms.append(Form(given.get("method", "get").upper(), action))
        elif "name" in given and self.forms and tag in ("input", "select", "textarea", "button"):
            self.forms[-1].fields.setdefault(given["name"], given.get("value", ""))


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the dashboard. Public ones need no session."""

    method: str
    path: str
    is_public: bool
    pattern: re.Pattern[str]


def list_routes() -> list[Route]:
    return [
        Route(page.method, canonical, page.right is None, pattern)
        for page in pages.PAGES
        for canonical, pattern in [_parse_path(page.path)]
    ]


def _parse_path(path: str) -> tuple[str, re.Pattern[str]]:
    """Return the path with {names} only, and the pattern of the paths that it matches."""
    resource = web.UrlDispatcher().add_resource(path)
    found = resource.get_info().get("pattern")
    return resource.canonical, found or re.compile(re.escape(path))


def list_page_doors(installation: Installation) -> Iterator[Door]:
    routes = list_routes()
    forms = find_forms(installation, routes)
    if unknown := find_unknown(forms):
        raise RuntimeError(f"Add the fields of {', '.join(unknown)} to FURTHER_FIELDS.")
    for route in routes:
        if route.method == "GET":
            yield from _list_get_doors(installation, route)
        else:
            yield from _list_form_doors(installation, route, forms)
    yield from _list_origin_doors(installation, forms)


def find_forms(installation: Installation, routes: Sequence[Route]) -> dict[str, Form]:
    """Return {path of a route: a form that a page shows for it}, with its token."""
    found: dict[str, Form] = {}
    for route in routes:
        if route.method == "GET" and not route.path.endswith((".csv", "print", "svg", "png")):
            path = fill_page(installation, route.path)
            # Pages of forms that create a document are redirected to an address with a key.
            keyed = f"{path}?{KEY}={make_token()}"
            answer = installation.service.send(Request("GET", keyed, _headers(installation, route)))
            parser = _Forms(path)
            parser.feed(answer.body.decode(errors="replace"))
            for form in parser.forms:
                _add_form(found, routes, form)
    return found


def _add_form(found: dict[str, Form], routes: Sequence[Route], form: Form) -> None:
    """Add a form to those of its route, with the fields of all forms for it."""
    for target in routes:
        if target.method == form.method == "POST" and target.pattern.fullmatch(form.action):
            known = found.setdefault(target.path, form)
            known.fields = {**form.fields, **known.fields}


def find_unknown(forms: Mapping[str, Form]) -> list[str]:
    """Return the routes of forms that neither a page shows nor FURTHER_FIELDS has."""
    routes = {route.path for route in list_routes() if route.method == "POST"}
    return sorted(routes - forms.keys() - FURTHER_FIELDS.keys())


def fill_page(installation: Installation, path: str) -> str:
    """Return the path of a page with the ids of records, or the token of a link."""
    first = f"/{path.split('/')[1]}"
    ids = {
        "/invoices": installation.ids["submitted" if path.endswith("/note") else "/api/invoices"],
        "/notes": installation.ids["/api/adjustment-notes"],
        "/requests": installation.ids["/api/einvoice-requests"],
        "/settings": installation.ids["/api/webhooks"],
    }
    is_ending = path.rpartition("/")[2] in ENDING.split()
    path = path.replace("{id}", "999999" if is_ending else ids.get(first, "1"))
    path = path.replace("{token}", installation.tokens.get(first, "unknown"))
    path = path.replace("{choice}", "approve").replace("{action}", "enable")
    return re.sub(r"\{\w+\}", "1", path)


def _headers(installation: Installation, route: Route) -> list[tuple[str, str]]:
    """Return the headers of a browser: its session, or the cookie of a visitor."""
    cookie = f"einvoice_visitor={installation.visitor}" if route.is_public else installation.session
    return [("Cookie", cookie), ("Accept", "text/html")]


def _list_get_doors(installation: Installation, route: Route) -> Iterator[Door]:
    """Yield the doors of a page: its query, and the id or token in its path."""
    queries: dict[str, Callable[[int], str]] = dict(list_query_shapes(("page", "query")))
    for name in ("query", "next"):
        for piece in TARGET_PIECES:
            text = make_text(ASCII_PIECES[piece])
            queries[f"{name} of {piece}"] = lambda size, name=name, text=text: (
                f"{name}={text(size)}"
            )
    path, headers = fill_page(installation, route.path), _headers(installation, route)
    for shape, make in queries.items():

        def cost(size: int, make: Callable[[int], str] = make) -> float:
            return installation.service.measure([Request("GET", f"{path}?{make(size)}", headers)])

        yield Door(f"GET {route.path}?: {shape}", cost, HEADER_LIMIT)
    if "{" in route.path:
        yield from list_path_doors(installation, "GET", route.path)


def _list_form_doors(
    installation: Installation, route: Route, forms: Mapping[str, Form]
) -> Iterator[Door]:
    """Yield the doors of a form: every field, and shapes of the whole form."""
    fields: Mapping[str, str] = {}
    is_ending = route.path.rpartition("/")[2] in ENDING.split()
    path = fill_page(installation, route.path)
    if not is_ending:
        token = forms["/confirm"].fields["form_token"]
        further = dict.fromkeys(FURTHER_FIELDS.get(route.path, ()), "")
        fields = forms.get(route.path, Form("POST", path, {"form_token": token, **further})).fields
    limit = PUBLIC_LIMIT if route.is_public else SESSION_LIMIT
    headers = _headers(installation, route)

    def make_door(
        name: str, make: Callable[[int], bytes], limit: int, kind: str = FORM_TYPE
    ) -> Door:
        sent = [*headers, ("Content-Type", kind)]
        return Door(
            f"POST {route.path}: {name}",
            lambda size: installation.service.measure([Request("POST", path, sent, make(size))]),
            limit,
        )

    start = urlencode(fields).encode() + b"&a="
    for name, (make, kind) in list_form_shapes().items():
        if name in EVERY_FORM or route.path in WHOLE_FORMS:
            yield make_door(name, lambda size, make=make: start + make(size), limit, kind)
    for name in fields or ["form_token"]:
        for piece in PUBLIC_PIECES if route.is_public else SESSION_PIECES:
            make = _make_field(fields, name, PIECES[piece])
            yield make_door(f"{name} of {piece}", make, min(limit, FIELD_LIMIT))


def _make_field(fields: Mapping[str, str], name: str, piece: str) -> Make:
    """Return the shape of a form with one long field."""
    others = urlencode({key: text for key, text in fields.items() if key != name})
    start = f"{others}&{quote(name)}=".encode()
    return lambda size: start + repeat(quote(piece), size).encode()


def list_form_shapes() -> Mapping[str, tuple[Make, str]]:
    """Return {shape: (text of a size of the rest of a form, its content type)}."""
    shapes: dict[str, Make] = {
        "separators": lambda size: b"&" * size,
        "many fields": lambda size: b"&".join(b"a%d=1" % number for number in range(size // 9)),
        "many members": lambda size: b"&".join(
            b"%%2Fname%d=1" % number for number in range(size // 16)
        ),
        "repeated field": lambda size: b"a&a=" * (size // 4),
        "escapes": lambda size: b"%41" * (size // 3),
        "bad escapes": lambda size: b"%" * size,
        "long name": lambda size: b"&" + b"n" * size + b"=1",
        "NUL characters": lambda size: b"%00" * (size // 3),
        "not UTF-8": lambda size: b"%ff" * (size // 3),
    }
    # Letters after a hyphen: in punycode, as many characters to insert.
    charsets = {
        f"charset {charset}": (lambda size: b"-" + b"a" * size, f"{FORM_TYPE}; charset={charset}")
        for charset in CHARSETS
    }
    return {
        **{name: (make, FORM_TYPE) for name, make in shapes.items()},
        **charsets,
        "multipart": (_make_multipart, "multipart/form-data; boundary=a"),
    }


def _make_multipart(size: int) -> bytes:
    part = b'--a\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    return part * (size // len(part)) + b"--a--\r\n"


def _list_origin_doors(installation: Installation, forms: Mapping[str, Form]) -> Iterator[Door]:
    """Yield the door of a form with 100 lines of one stored line, whose size grows."""
    route = next(each for each in list_routes() if each.path == "/invoices/{id}/edit")
    invoice = f"/api/invoices/{installation.ids['/api/invoices']}"
    headers = [*_headers(installation, route), ("Content-Type", FORM_TYPE)]
    origins = {f"/lineItems/{number}/origin": "0" for number in range(100)}
    form = urlencode({**forms[route.path].fields, **origins, "do": "save"}).encode()

    def cost(size: int) -> float:
        line = example("invoice_create")["lineItems"][0] | {"shopNotes": [0] * (size // 3)}
        body = json.dumps({"lineItems": [line]}).encode()
        installation.service.send(Request("PUT", invoice, installation.headers(), body))
        return installation.service.measure(
            [Request("POST", fill_page(installation, route.path), headers, form)]
        )

    yield Door("POST /invoices/{id}/edit: 100 lines of one origin", cost, STORED_LIMIT)
