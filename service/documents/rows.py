"""The interface of database rows, so that the rules do not depend on a database driver."""

from collections.abc import Iterable
from typing import Any, Protocol


class Row(Protocol):
    """A row of a statement, or a mapping with its columns."""

    def keys(self) -> Iterable[str]: ...
    def __getitem__(self, name: str, /) -> Any: ...
