"""The repository and its test data."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Request bodies that each schema accepts and rejects.
BODIES = ROOT / "tests" / "bodies"
#: The expected portal documents.
DOCUMENTS = ROOT / "tests" / "documents"
