"""Step 4: values of code lists, when they held, and states that fit their country. Portal: 10.4, 12, 14.4, 14.5"""

import re
from math import inf

from service.documents.codes import TABLES

from ..database import sql
from ..document import entries, values
from . import Finding, wildcard

TAX_TYPE = "TaxTotal.TaxSubtotal.TaxCategory.ID"
RECIPIENT = "Delivery.DeliveryParty"
#: (path, attribute, table)
LISTED = (
    ("DocumentCurrencyCode", "_", "currencies"),
    ("TaxCurrencyCode", "_", "currencies"),
    ("TaxExchangeRate.SourceCurrencyCode", "_", "currencies"),
    ("TaxExchangeRate.TargetCurrencyCode", "_", "currencies"),
    ("PaymentMeans.PaymentMeansCode", "_", "payment_modes"),
    (TAX_TYPE, "_", "tax_types"),
    (f"InvoiceLine.{TAX_TYPE}", "_", "tax_types"),
    ("InvoiceLine.Item.OriginCountry.IdentificationCode", "_", "countries"),
    ("InvoiceLine.InvoicedQuantity", "unitCode", "units"),
    ("InvoiceLine.TaxTotal.TaxSubtotal.BaseUnitMeasure", "unitCode", "units"),
    ("AccountingSupplierParty.Party.IndustryClassificationCode", "_", "msic"),
)
CLASSIFICATION = "InvoiceLine.Item.CommodityClassification.ItemClassificationCode"
COUNTRY, STATE = "PostalAddress.Country.IdentificationCode", "PostalAddress.CountrySubentityCode"
NOT_APPLICABLE = "17"

#: table -> what its list is called
CALLED = {
    "currencies": "currency",
    "payment_modes": "payment mode",
    "tax_types": "tax type",
    "countries": "country",
    "units": "unit",
    "msic": "MSIC",
    "classifications": "classification",
    "states": "state",
}
#: table -> the form of its codes, for lists too long and too often changed to be here
FORMS = {"units": r"[A-Z0-9]{1,3}", "msic": r"[0-9]{5}"}
#: (table, code) -> (first second, second after the last) of codes that did not always hold. Portal:
#: 12.2
DATED = {("states", "00"): (-inf, 1748736000)}  # until June 2025


def check(document, row, sandbox):
    judge = Judge(document, sandbox)
    for path, attribute, table in LISTED:
        for text in values(document.invoice, path, attribute):
            yield from judge.code(table, text, path, attribute)
    for entry in entries(document.invoice, CLASSIFICATION):
        if entry.get("listID", "CLASS") == "CLASS":
            yield from judge.code("classifications", entry["_"], CLASSIFICATION)
    for party in (document.supplier, document.buyer, document.party("RECIPIENT", RECIPIENT)):
        yield from judge.place(party)


class Judge:
    """The code lists at the time a document was issued."""

    def __init__(self, document, sandbox):
        self.document = document
        self.may_hide_state = document.consolidated and sandbox.controls.consolidated_state_17
        self.dated = DATED | {
            (row["list"], row["code"]): span(row) for row in sql.code_all(sandbox.db)
        }

    def code(self, table, text, path, attribute="_"):
        start, end = self.dated.get((table, text), (None, None))
        if start is None:
            if not listed(table, text):
                message = f"Value {text} is not in the list of {CALLED[table]} codes."
                yield finding(
                    "CV302", message, f"Nilai {text} tiada dalam senarai kod.", path, attribute
                )
        elif not start <= self.document.issued_at < end:
            message = (
                f"The {CALLED[table]} code {text} was not active when the document was issued."
            )
            yield finding(
                "CF320",
                message,
                f"Kod {text} tidak aktif semasa dokumen dikeluarkan.",
                path,
                attribute,
            )

    def place(self, party):
        """The country and the state of an address; a blank one was judged by the core fields."""
        country, state, path = party.country, party.text(STATE), f"{party.root}.{STATE}"
        if country and (
            unknown := list(self.code("countries", country, f"{party.root}.{COUNTRY}"))
        ):
            yield from unknown
        elif country and country != "MYS":
            if state in TABLES["states"] and state != NOT_APPLICABLE:
                message = f"State {state} is only for the country MYS."
                yield finding("CV316", message, f"Negeri {state} hanya untuk MYS.", path)
        elif state == NOT_APPLICABLE and not self.may_hide_state:
            message = "State 17 is only for consolidated documents and addresses outside Malaysia."
            yield finding(
                "CV317",
                message,
                "Negeri 17 hanya untuk dokumen disatukan dan alamat luar negara.",
                path,
            )
        elif state:
            yield from self.code("states", state, path)


def listed(table, text):
    """Whether the list has the code; of a list that is not here, whether it could have."""
    return (
        text in TABLES[table] if table in TABLES else re.fullmatch(FORMS[table], text) is not None
    )


def span(row):
    start, end = row["active_from"], row["active_to"]
    return -inf if start is None else start, inf if end is None else end


def finding(code, message, malay, path, attribute="_"):
    return Finding(code, message, path.rpartition(".")[2], wildcard(path, attribute), malay)
