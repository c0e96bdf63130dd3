"""Step 4: values of code lists, and states that fit their country. Portal: 10.4, 12, 14.4"""

import re

from service.codes import TABLES

from ..document import entries, values
from . import Finding, wildcard

TAX_TYPE = "TaxTotal.TaxSubtotal.TaxCategory.ID"
#: path -> (table, what its list is called)
LISTED = {
    "DocumentCurrencyCode": ("currencies", "currency"),
    "TaxCurrencyCode": ("currencies", "currency"),
    "TaxExchangeRate.SourceCurrencyCode": ("currencies", "currency"),
    "TaxExchangeRate.TargetCurrencyCode": ("currencies", "currency"),
    "PaymentMeans.PaymentMeansCode": ("payment_modes", "payment mode"),
    TAX_TYPE: ("tax_types", "tax type"),
    f"InvoiceLine.{TAX_TYPE}": ("tax_types", "tax type"),
    "InvoiceLine.Item.OriginCountry.IdentificationCode": ("countries", "country"),
}
#: (path, attribute, form, what its list is called): lists too long and too often changed to be here
FORMED = (
    ("InvoiceLine.InvoicedQuantity", "unitCode", r"[A-Z0-9]{1,3}", "unit"),
    ("InvoiceLine.TaxTotal.TaxSubtotal.BaseUnitMeasure", "unitCode", r"[A-Z0-9]{1,3}", "unit"),
    ("AccountingSupplierParty.Party.IndustryClassificationCode", "_", r"[0-9]{5}", "MSIC"),
)
CLASSIFICATION = "InvoiceLine.Item.CommodityClassification.ItemClassificationCode"
COUNTRY, STATE = "PostalAddress.Country.IdentificationCode", "PostalAddress.CountrySubentityCode"
NOT_APPLICABLE = "17"


def check(document, row, sandbox):
    for path, (table, kind) in LISTED.items():
        yield from (unlisted(text, kind, path) for text in values(document.invoice, path) if text not in TABLES[table])
    for path, attribute, form, kind in FORMED:
        found = values(document.invoice, path, attribute)
        yield from (unlisted(text, kind, path, attribute) for text in found if not re.fullmatch(form, text))
    for entry in entries(document.invoice, CLASSIFICATION):
        if entry.get("listID", "CLASS") == "CLASS" and entry["_"] not in TABLES["classifications"]:
            yield unlisted(entry["_"], "classification", CLASSIFICATION)
    for party in (document.supplier, document.buyer, document.party("RECIPIENT", "Delivery.DeliveryParty")):
        yield from place(document, party)


def place(document, party):
    """The country and the state of an address; a blank one was judged by the core fields."""
    country, state = party.country, party.text(STATE)
    path = f"{party.root}.{STATE}"
    if country and country not in TABLES["countries"]:
        yield unlisted(country, "country", f"{party.root}.{COUNTRY}")
    elif country and country != "MYS":
        if state in TABLES["states"] and state != NOT_APPLICABLE:
            message = f"State {state} is only for the country MYS."
            yield finding("CV316", message, f"Negeri {state} hanya untuk MYS.", path)
    elif state and state not in TABLES["states"]:
        yield unlisted(state, "state", path)
    elif state == NOT_APPLICABLE and not document.consolidated:
        message = "State 17 is only for consolidated documents and addresses outside Malaysia."
        yield finding("CV317", message, "Negeri 17 hanya untuk dokumen disatukan dan alamat luar negara.", path)


def unlisted(text, kind, path, attribute="_"):
    message = f"Value {text} is not in the list of {kind} codes."
    return finding("CV302", message, f"Nilai {text} tiada dalam senarai kod.", path, attribute)


def finding(code, message, malay, path, attribute="_"):
    return Finding(code, message, path.rpartition(".")[2], wildcard(path, attribute), malay)
