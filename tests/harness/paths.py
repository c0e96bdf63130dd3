"""The repository, its test data, and programs of the machine."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The expected portal documents.
DOCUMENTS = ROOT / "tests" / "documents"


def find_program(name: str) -> str | None:
    """Return the path of a program, also if only root has its folder in PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
