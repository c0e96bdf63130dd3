"""The kinds of documents: invoices, adjustment notes and consolidated invoices."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of document. `name` is its name in the database, in snake case."""

    name: str

    @property
    def noun(self) -> str:
        """Return its name in messages."""
        return self.name.replace("_", " ")

    @property
    def title(self) -> str:
        return self.noun.capitalize()

    @property
    def with_article(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"


INVOICE = DocumentKind("invoice")
NOTE = DocumentKind("adjustment_note")
CONSOLIDATED = DocumentKind("consolidated_invoice")
KINDS = (INVOICE, NOTE, CONSOLIDATED)
