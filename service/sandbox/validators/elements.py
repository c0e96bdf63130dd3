"""The elements of a document: names, kinds, lengths, characters and code lists. Portal: 10

In `elements.json`, an object is a group of elements, or the name of a group. A text is a basic
element: its kind and the rules for its values. A name that ends in `!` is required. `*` has the
names of UBL 2.1 that are allowed and not checked, `<` the group whose elements a group also has.

    max   characters of a text
    code  of a text that is too long, for the supplier and the buyer
    form  name of the characters of a text in FORMS
    list  code list of the value, or of the unit of a number
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Forms of texts. `/` and `:` are not in the published list of characters of a reason, but in the
#: authority's own examples.
FORMS = {"exporter": r"[\w -]*", "agreement": r"[\w ()-]*", "reason": r"[\w .,()/:-]*"}
Shape = Mapping[str, Any]
#: Name of a group -> its elements.
SHAPES: Shape = json.loads(Path(__file__).with_name("elements.json").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Element:
    """An element; its kind is `group`, `any`, or that of a basic element."""

    kind: str
    is_required: bool = False
    members: "Mapping[str, Element]" = field(default_factory=dict[str, "Element"])
    rules: Mapping[str, str] = field(default_factory=dict[str, str])


Group = Mapping[str, Element]


def compile_group(shape: Shape) -> Group:
    """Return the elements of a group by their names."""
    group: dict[str, Element] = {}
    for name, text in shape.items():
        inner = SHAPES.get(text) if isinstance(text, str) else text
        is_required = name.endswith("!")
        if name == "<":
            group |= compile_group(SHAPES[text])
        elif inner:
            group[name.rstrip("!")] = Element("group", is_required, compile_group(inner))
        elif name == "*":
            group |= dict.fromkeys(text.split(), Element("any"))
        else:
            kind, *rules = text.split()
            named = dict(rule.split("=") for rule in rules)
            group[name.rstrip("!")] = Element(kind, is_required, rules=named)
    return group


ELEMENTS = compile_group(SHAPES["INVOICE"])


def with_rule(name: str, group: Group = ELEMENTS, path: str = "") -> Iterator[tuple[str, Element]]:
    """Yield (path, element) of every basic element that has a rule of the name."""
    for each, element in group.items():
        yield from with_rule(name, element.members, f"{path}{each}.")
        if name in element.rules:
            yield f"{path}{each}", element


#: Namespaces of the root object.
NAMESPACES = {
    "_D": "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2",
    "_A": "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2",
    "_B": "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2",
}
EXTENSIONS = "urn:oasis:names:specification:ubl:schema:xsd:CommonExtensionComponents-2"
