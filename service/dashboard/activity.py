"""The audit log in words: who did what, and the old and new values."""

import re
from collections.abc import Callable
from functools import partial
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from service import json_codec
from service.dashboard import formats
from service.documents.printing import tax_name
from service.json_types import JsonMapping

Texts = JsonMapping
#: Kind of a document in the audit log -> path of its pages.
PATHS = {
    "invoice": "/invoices",
    "adjustment note": "/notes",
    "consolidated invoice": "/consolidated",
}
TAXES = "default_tax_types_and_rates"
#: Members whose values are instants.
_INSTANT = re.compile(r"(_at|not_before|not_after)$")


def make_filters(texts: Texts) -> dict[str, Callable[..., object]]:
    """Return the filters of templates that describe a row of the audit log in a language."""
    return {"activity": partial(_describe, texts), "changes": partial(_describe_changes, texts)}


def _describe(texts: Texts, row: JsonMapping) -> Markup:
    """Return an entry in words, such as: Key till cancelled invoice 7."""
    kind, _, name = row["actor"].partition(" ")
    words = texts["activity"]
    who = (
        words["actors"]
        .get(kind, "{name}")
        .format(name=row["user_name"] or row["key_name"] or name, id=name)
    )
    action = Markup("{}").format(words["actions"].get(row["action"], row["action"]))
    return action.format(who=Markup("<bdi>{}</bdi>").format(who), subject=_describe_subject(row))


def _describe_subject(row: JsonMapping) -> Markup:
    """Return the subject of an entry: a document with its code instead of its id, and its page."""
    if row.get("person"):  # such as: user 7 as owner
        words = row["subject"].split(" ", 2)
        return Markup("<bdi>{}</bdi> {}").format(row["person"], " ".join(words[2:]))
    kind, _, document_id = row["subject"].rpartition(" ")
    if kind not in PATHS or row.get("code") is None:
        return Markup("<bdi>{}</bdi>").format(row["subject"])
    label = f"{kind} {row['code']}"
    if not row.get("has_page"):
        return escape(label)
    return Markup('<a href="{}/{}">{}</a>').format(PATHS[kind], document_id, label)


def _describe_changes(texts: Texts, row: JsonMapping, zone: ZoneInfo) -> list[Markup]:
    """Return the changed members of an entry in words, such as: City: from Ipoh to Klang."""
    labels = _label_members(texts)
    changes: JsonMapping = json_codec.loads((row["changes"] or "{}").encode())
    known = [name for name in labels if name in changes]
    described = []
    for name in [*known, *sorted(changes.keys() - labels.keys())]:
        old, new = (
            _describe_value(texts, name, changes[name][side], zone) for side in ("old", "new")
        )
        if old != new:  # An empty text that was nothing before is no change.
            described.append(_describe_change(texts, labels.get(name, name), old, new))
    return described


def _label_members(texts: Texts) -> dict[str, str]:
    """Return the labels of members as the forms of the settings have them."""
    settings = texts["settings"]
    prefixes = {
        f"setting.{name}": texts["activity"]["prefix"].format(name=label)
        for name, label in settings["numbers"]["prefixes"].items()
    }
    return {**settings["profile"]["fields"], **prefixes, **texts["activity"]["members"]}


def _describe_change(
    texts: Texts, label: str, old: str | Markup | None, new: str | Markup | None
) -> Markup:
    words = texts["activity"]["changes"]
    kind = "added" if old is None else "removed" if new is None else "changed"
    return Markup(words[kind]).format(name=label, old=old, new=new)


def _describe_value(texts: Texts, name: str, value: object, zone: ZoneInfo) -> str | Markup | None:
    """Return a value in words. None if there is none."""
    words = texts["activity"]["values"]
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
        return texts["roles"].get(value, value)
    if name == "purpose":
        return texts["sharing"]["purposes"].get(value, value)
    if _INSTANT.search(name):
        return formats.when(str(value), zone)
    return Markup("<bdi>{}</bdi>").format(value)
