"""Request bodies that each schema accepts and rejects, from `tests/bodies/`.

A file has groups of bodies. A body is written as its differences from the base of its group: paths
of members and entries with their values, `"(absent)"` for a member that is left out. The object
`{"repeat": "x", "times": 301}` is a text, or an array, that is repeated.
"""

import json
from copy import deepcopy
from decimal import Decimal
from typing import Any

from tests.harness.paths import ROOT

VALID, INVALID = "valid", "invalid"


def load_bodies(side: str, number: type[Decimal | float] = Decimal) -> dict[str, dict[str, Any]]:
    """Return {schema: {name: body}} of the valid or invalid bodies, fractions as `number`."""
    bodies: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "tests" / "bodies").glob(f"*.{side}.json")):
        groups = json.loads(path.read_bytes(), parse_float=number, object_pairs_hook=_make_object)
        members = [
            (name, _apply(differences, deepcopy(group["base"])))
            for group in groups
            for name, differences in group["bodies"].items()
        ]
        bodies[path.name.partition(".")[0]] = _make_object(members)
    return bodies


def _make_object(members: list[tuple[str, Any]]) -> Any:
    """Return an object whose names are unique, or what it repeats."""
    made, names = dict(members), [name for name, _ in members]
    assert len(made) == len(names), f"twice: {[name for name in made if names.count(name) > 1]}"
    return made["repeat"] * made["times"] if made.keys() == {"repeat", "times"} else made


def _apply(differences: dict[str, Any], body: Any) -> Any:
    """Return a body with its differences from the base."""
    for path, value in differences.items():
        *steps, name = path.split("/")
        holder = body
        for step in steps:
            holder = holder[int(step) if isinstance(holder, list) else step]
        if value == "(absent)":
            del holder[name]
        else:
            holder[name] = value
    return body
