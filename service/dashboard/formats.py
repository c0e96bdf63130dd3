"""The texts of pages, and how they write amounts, instants and counts. Filters of the templates."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from markupsafe import Markup

from service.documents import printing
from service.json_types import JsonMapping, Row
from service.schema import name_in_record

FOLDER = Path(__file__).parent
#: Texts of all pages; another language is another file of the same form.
TEXTS = json.loads((FOLDER / "texts" / "en.json").read_text("utf-8"))
NONE = "–"
#: Elements of the portal's documents -> their names for people.
ELEMENTS = {
    "AccountingCustomerParty": "buyer",
    "AccountingSupplierParty": "supplier",
    "InvoiceLine": "lines",
    "LegalMonetaryTotal": "totals",
}
#: An element in a path of the portal's document, or the place of a line or a tax.
_STEP = re.compile(r"[A-Za-z]+|(?<=InvoiceLine\[)[0-9]+|(?<=TaxSubtotal\[)[0-9]+")


def amount(number: Decimal | int | str | None, currency: str = "") -> str:
    """Return an amount with two decimals and grouped digits, after its currency."""
    if number is None:
        return NONE
    text = f"{Decimal(number):,.2f}".replace("-", "−")
    return f"{currency}\u00a0{text}" if currency else text


def plain(number: Decimal | int | str) -> str:
    """Return a number as it was given, with grouped digits and without trailing zeros."""
    text = f"{Decimal(number):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def when(at: datetime | str | None, zone: ZoneInfo) -> Markup | str:
    """Return an instant in the company's zone, with UTC on hover."""
    return NONE if at is None else day(at, zone, ", %H:%M")


def day(at: datetime | str, zone: ZoneInfo, clock: str = "") -> Markup:
    """Return the day of an instant, and its time in the format `clock`, with UTC on hover."""
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    local, utc = instant.astimezone(zone), instant.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{utc:%Y-%m-%dT%H:%M:%SZ}",
        f"{utc:%Y-%m-%d %H:%M:%S}",
        local.strftime(f"{local.day} %b %Y{clock}"),
    )


def span(length: timedelta) -> str:
    """Return a length of time in hours and minutes, such as 3 h 20 min."""
    hours, minutes = divmod(int(length.total_seconds()) // 60, 60)
    return f"{hours} h {minutes} min"


def count(number: int) -> str:
    return f"{number:,}"


def month(text: str) -> str:
    """Return a month such as 2026-10 in words."""
    return f"{date.fromisoformat(f'{text}-01'):%b %Y}"


def listed_party(row: Row) -> str:
    """Return the name or the kind of the other party of a document in a list, or its month."""
    if row["month"]:
        return month(row["month"])
    return row["party_name"] or TEXTS["form"]["party_types"].get(row["party_type"], NONE)


def party_facts(who: JsonMapping) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of a party's members that have a value."""
    registration = who.get("registration") or {}
    labels = TEXTS["settings"]["profile"]["fields"]
    values = {
        labels["tin_code"]: who.get("tin"),
        TEXTS["form"]["party"]["registration"]: " ".join(
            filter(None, [registration.get("type"), registration.get("number")])
        ),
        labels["sst_registration_number"]: who.get("sstRegistrationNumber"),
        labels["email"]: who.get("email"),
        labels["phone"]: who.get("contactNumber"),
        labels["address"]: ", ".join(printing.address(who)),
    }
    return ((label, str(text)) for label, text in values.items() if text)


def field_name(path: str) -> str:
    """Return a JSON Pointer in words: /lineItems/0/unit/price is Line items 1, unit, price."""
    words: list[str] = []
    for part in path.removeprefix("/").split("/"):
        if part.isdecimal() and words:
            words[-1] += f" {int(part) + 1}"
        else:
            words.append(name_in_record(part).replace("_", " ").strip())
    return ", ".join(words).capitalize()


def portal_field(path: str) -> str:
    """Return a path in the portal's document in words: $.Invoice[0].InvoiceLine[1] is Lines 2."""
    steps: list[str] = _STEP.findall(path.removeprefix("$.Invoice"))
    members = "/".join(ELEMENTS.get(step, step) for step in steps if step != "Party")
    return field_name(members) or path


FILTERS = (
    amount,
    plain,
    when,
    day,
    span,
    count,
    listed_party,
    party_facts,
    field_name,
    portal_field,
    month,
    printing.tax_name,
)
