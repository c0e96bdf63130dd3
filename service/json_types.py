"""The types of JSON values, as json_codec gives them, and of rows. Imports no other module.

A value that is only passed on, stored or written is an `object`.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

#: A value whose members are examined. Numbers that are not integers are Decimal.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | Decimal | int | None"
#: An object whose members are read by name and not examined again: a JSON Schema, the database or
#: the service itself has determined their types.
JsonObject: TypeAlias = dict[str, Any]
#: The same where it is only read.
JsonMapping: TypeAlias = Mapping[str, Any]


class Row(Protocol):
    """A row of a statement, or a mapping with its columns. Rules know no database driver."""

    def keys(self) -> Iterable[str]: ...
    def __getitem__(self, name: str, /) -> Any: ...
