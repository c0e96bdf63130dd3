"""The audit log in words: who did what, and the old and new values."""

import re
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from service import json_codec
from service.dashboard.formats import TEXTS, when
from service.documents.printing import tax_name
from service.json_types import JsonMapping

WORDS = TEXTS["activity"]
#: Kind of a document in the audit log -> path of its pages.
PATHS = {
    "invoice": "/invoices",
    "adjustment note": "/notes",
    "consolidated invoice": "/consolidated",
}
#: The labels of members, as the forms of the settings have them.
LABELS = {
    **TEXTS["settings"]["profile"]["fields"],
    **{
        f"setting.{name}": WORDS["prefix"].format(name=label)
        for name, label in TEXTS["settings"]["numbers"]["prefixes"].items()
    },
    **WORDS["members"],
}
TAXES = "default_tax_types_and_rates"
#: Members whose values are instants.
_INSTANT = re.compile(r"(_at|not_before|not_after)$")


def describe(row: JsonMapping) -> Markup:
    """Return an entry in words, such as: Key till cancelled invoice 7."""
    kind, _, name = row["actor"].partition(" ")
    name = row["user_name"] or row["key_name"] or name
    who = WORDS["actors"].get(kind, "{name}").format(name=name)
    action = escape(WORDS["actions"].get(row["action"], row["action"]))
    return action.format(who=_isolate(who), subject=_describe_subject(row))


def _isolate(text: object) -> Markup:
    """Return an entered text, whose direction of writing does not affect the text around it."""
    return Markup("<bdi>{}</bdi>").format(text)


def _describe_subject(row: JsonMapping) -> Markup:
    """Return the subject of an entry: a document with its code instead of its id, and its page."""
    if row.get("person"):  # such as: user 7 as owner
        words = row["subject"].split(" ", 2)
        return _isolate(row["person"]) + " " + " ".join(words[2:])
    kind, _, document_id = row["subject"].rpartition(" ")
    if kind not in PATHS or row.get("code") is None:
        return _isolate(row["subject"])
    label = f"{kind} {row['code']}"
    if not row.get("has_page"):
        return escape(label)
    return Markup('<a href="{}/{}">{}</a>').format(PATHS[kind], document_id, label)


def describe_changes(row: JsonMapping, zone: ZoneInfo) -> list[Markup]:
    """Return the changed members of an entry in words, such as: City: from Ipoh to Klang."""
    changes: JsonMapping = json_codec.loads_own(row["changes"] or "{}")
    known = [name for name in LABELS if name in changes]
    described = []
    for name in [*known, *sorted(changes.keys() - LABELS.keys())]:
        old, new = (_describe_value(name, changes[name][side], zone) for side in ("old", "new"))
        if old != new:  # An empty text that was nothing before is no change.
            kind = "added" if old is None else "removed" if new is None else "changed"
            words = Markup(WORDS["changes"][kind])
            described.append(words.format(name=LABELS.get(name, name), old=old, new=new))
    return described


def _describe_value(name: str, value: object, zone: ZoneInfo) -> str | None:
    """Return a value in words. None if there is none."""
    words = WORDS["values"]
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return words["yes" if value else "no"]
    if isinstance(value, list):
        if name == TAXES:
            shown = (f"{tax_name(tax['tax_type'])} {tax['tax_rate']}%" for tax in value)
            return ", ".join(shown) or None
        return escape(", ".join(map(str, value))) if value else words["all"]
    if name == "role":
        return TEXTS["roles"].get(value, value)
    if name == "purpose":
        return TEXTS["sharing"]["purposes"].get(value, value)
    if _INSTANT.search(name):
        return when(str(value), zone)
    return _isolate(value)
