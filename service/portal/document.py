"""A stored invoice or note as the portal's UBL 2.1 JSON document, and the bytes that are sent.

Pure functions. Each group of elements is one function that reads like its table in the portal's document
description; `value` and `group` wrap what they are given as UBL wants it. Texts are trimmed and cut to the
portal's lengths, numbers that identify something are never cut, amounts come from `service/money.py`. Portal: 10
"""

import base64
import hashlib
import re
from datetime import timezone
from decimal import Decimal
from textwrap import wrap

import simplejson

from service.money import EXEMPT, exact_number, round2, totals

HOME_CURRENCY = "MYR"
HOME = "MYS"

#: What stands for a text that a party does not have, a state abroad, and an identity when only a TIN is known.
NOT_GIVEN = "NA"
STATE_ABROAD = "17"
IDENTITY_UNKNOWN = "000000000000"

#: The most address lines, and the most characters of one. Portal: 10.4
ADDRESS_LINES = 3
ADDRESS_LINE = 150

NAMESPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
NAMESPACES = {
    "_D": NAMESPACE + "Invoice-2",
    "_A": NAMESPACE + "CommonAggregateComponents-2",
    "_B": NAMESPACE + "CommonBasicComponents-2",
}

#: our type -> the portal's document type. Portal: 9
DOCUMENT_TYPES = {
    "INVOICE": "01",
    "PENDING_FINALIZE_INVOICE": "01",
    "CONSOLIDATED_INVOICE": "01",
    "SELF_BILLED_INVOICE": "11",
    "PENDING_FINALIZE_SELF_BILLED_INVOICE": "11",
    "CONSOLIDATED_SELF_BILLED_INVOICE": "11",
}
NOTE_TYPES = {"CREDIT_NOTE": "02", "DEBIT_NOTE": "03", "REFUND_NOTE": "04"}
SELF_BILLED_NOTE_TYPES = {"CREDIT_NOTE": "12", "DEBIT_NOTE": "13", "REFUND_NOTE": "14"}

PUBLIC, FOREIGNER, SELLER_ABROAD, AUTHORITY = (f"EI000000000{n}0" for n in (1, 2, 3, 4))

#: party type -> the TIN of one that has none, as buyer and as supplier; other parties need their own. Portal: 12.9
BUYER_TINS = {
    "LOCAL_INDIVIDUAL": PUBLIC,
    "FOREIGN_INDIVIDUAL": FOREIGNER,
    "FOREIGN_COMPANY": FOREIGNER,
    "GOVERNMENT": AUTHORITY,
    "GENERAL_PUBLIC": PUBLIC,
}
SUPPLIER_TINS = {
    "LOCAL_INDIVIDUAL": PUBLIC,
    "FOREIGN_INDIVIDUAL": SELLER_ABROAD,
    "FOREIGN_COMPANY": SELLER_ABROAD,
    "GENERAL_PUBLIC": PUBLIC,
}

#: party type -> the scheme of its identity when the party names none.
SCHEMES = {"LOCAL_INDIVIDUAL": "NRIC", "FOREIGN_INDIVIDUAL": "PASSPORT"}

#: Parties without a trade of their own need no MSIC code. Portal: 10.14; individuals are our decision.
NO_TRADE = {"LOCAL_INDIVIDUAL", "FOREIGN_INDIVIDUAL", "FOREIGN_COMPANY", "GENERAL_PUBLIC"}
NO_MSIC = ("00000", "NOT APPLICABLE")

#: Buyers, or sellers, who stay unnamed. Portal: 10.13
GENERAL_PUBLIC = {
    "type": "GENERAL_PUBLIC",
    "name": "General Public",
    "contactNumber": NOT_GIVEN,
    "address": {"line1": NOT_GIVEN, "city": NOT_GIVEN, "state": STATE_ABROAD, "country": HOME},
}

TAX_SCHEME = [{"ID": [{"_": "OTH", "schemeID": "UN/ECE 5153", "schemeAgencyID": "6"}]}]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_PHONE_MARKS = re.compile(r"[\s()\[\]-]+")
_NUMBER_MARKS = re.compile(r"[\s\u200b-\u200d\u2060\ufeff-]+")


def build(source, issuer, *, number, issued_at, version="1.0"):
    """The document of `source`, to be given to `encode`; `missing` must have found nothing.

    `source` has the request shape, and for a note `selfBilled` and `originals`, [{uuid, number}]. `issuer` is the
    company's record. `issued_at` is in UTC. Raises money.AmountError when the lines make no amounts.
    """
    supplier, buyer = parties(source, issuer)
    currency = source.get("currencyCode") or HOME_CURRENCY
    adjustments = source.get("invoiceLevelAllowanceCharge") or {}
    sums = totals(source["lineItems"], adjustments)
    invoice = group(
        **header(source, number, issued_at, version, currency),
        BillingReference=billing_reference(source),
        AccountingSupplierParty=group(Party=supplier_party(supplier)),
        AccountingCustomerParty=group(Party=buyer_party(buyer)),
        AllowanceCharge=document_adjustments(adjustments, currency),
        TaxTotal=document_tax(sums, exemption_reasons(source["lineItems"]), currency),
        LegalMonetaryTotal=document_totals(sums, currency),
        InvoiceLine=[
            invoice_line(index, item, amounts, currency)
            for index, (item, amounts) in enumerate(zip(source["lineItems"], sums.lines), 1)
        ],
    )
    return {**NAMESPACES, "Invoice": invoice}


def encode(document):
    """The minified UTF-8 bytes that are hashed, signed and sent; numbers are plain decimals. Portal: 10.1"""
    return _encoder.encode(document).encode("utf-8")


def envelope(documents):
    """The body of a submission of [(number, bytes of the document)]. Portal: 4.1"""
    entries = [
        {
            "format": "JSON",
            "document": base64.b64encode(content).decode("ascii"),
            "documentHash": hashlib.sha256(content).hexdigest(),
            "codeNumber": number,
        }
        for number, content in documents
    ]
    return encode({"documents": entries})


def _plain(number):
    """A Decimal without an exponent, which str() would write for tiny and huge ones; anything else is refused."""
    if not isinstance(number, Decimal):
        raise TypeError(f"{type(number).__name__} has no place in a document")
    return simplejson.RawJSON(format(number, "f"))


#: Made once, and without tuples, which documents do not have: looking for them more than doubles the time.
_encoder = simplejson.JSONEncoder(
    use_decimal=False,
    default=_plain,
    ensure_ascii=False,
    separators=(",", ":"),
    namedtuple_as_object=False,
    tuple_as_array=False,
)


# How UBL wraps: everything is an array, and what is absent is left out.


def value(content, **attributes):
    return [{"_": content, **attributes}]


def group(**members):
    return [{name: member for name, member in members.items() if member}]


def amount(decimal, currency):
    return [{"_": decimal, "currencyID": currency}]


def text(content, limit=None):
    """Trimmed, without line feeds and other control characters, cut to `limit` characters if there is one."""
    return _CONTROL.sub(" ", content or "").strip()[:limit].rstrip()


def optional(content, limit=None):
    """The text as an element, or nothing when it is absent or blank."""
    kept = text(content, limit)
    return kept and value(kept)


# Header. Portal: 10.2


def header(source, number, issued_at, version, currency):
    moment = issued_at.astimezone(timezone.utc)
    return {
        "ID": value(number),
        "IssueDate": value(moment.strftime("%Y-%m-%d")),
        "IssueTime": value(moment.strftime("%H:%M:%SZ")),
        "InvoiceTypeCode": value(document_type(source), listVersionID=version),
        "DocumentCurrencyCode": value(currency),
        "TaxCurrencyCode": value(currency),
        "TaxExchangeRate": exchange_rate(source, currency),
    }


def document_type(source):
    if source["type"] in DOCUMENT_TYPES:
        return DOCUMENT_TYPES[source["type"]]
    return (SELF_BILLED_NOTE_TYPES if source.get("selfBilled") else NOTE_TYPES)[source["type"]]


def exchange_rate(source, currency):
    if currency == HOME_CURRENCY:
        return None
    return group(
        SourceCurrencyCode=value(currency),
        TargetCurrencyCode=value(HOME_CURRENCY),
        CalculationRate=value(exact_number(source, "exchangeRate")),
    )


def billing_reference(source):
    """The originals of a note; one from before e-invoicing has no uuid. Portal: 10.11"""
    if source["type"] not in NOTE_TYPES:
        return None
    references = [
        {"ID": value(original["number"]), "UUID": value(original.get("uuid") or NOT_GIVEN)}
        for original in source["originals"]
    ]
    return group(InvoiceDocumentReference=references)


# Parties. Portal: 10.3, 10.12


def parties(source, issuer):
    """(supplier, buyer) in the shape of a request's parties; the issuer is the buyer when it bills itself."""
    us = issuer_party(issuer)
    if is_self_billed(source):
        return _named(source.get("supplier")), us
    return us, _named(source.get("buyer"))


def is_self_billed(source):
    return document_type(source).startswith("1")


def _named(party):
    party = party or {}
    return GENERAL_PUBLIC if party.get("type") == "GENERAL_PUBLIC" else party


def issuer_party(issuer):
    return {
        "name": issuer.get("name"),
        "tin": issuer.get("tin_code"),
        "registration": {"type": issuer.get("registration_type"), "number": issuer.get("registration_number")},
        "sstRegistrationNumber": issuer.get("sst_registration_number"),
        "tourismTaxRegistrationNumber": issuer.get("tourism_tax_registration_number"),
        "msic": issuer.get("msic_code"),
        "businessActivityDescription": issuer.get("business_activity_description"),
        "contactNumber": issuer.get("phone"),
        "email": issuer.get("email"),
        "address": {
            "line1": issuer.get("address"),
            "city": issuer.get("city"),
            "state": issuer.get("state"),
            "zipCode": issuer.get("zip_code"),
            "country": issuer.get("country"),
        },
    }


def supplier_party(party):
    return group(
        IndustryClassificationCode=industry(party),
        PartyIdentification=identification(party, SUPPLIER_TINS, party.get("tourismTaxRegistrationNumber")),
        **common_party(party),
    )


def buyer_party(party):
    """Tourism tax is the supplier's, so a buyer has no number of it."""
    return group(PartyIdentification=identification(party, BUYER_TINS, None), **common_party(party))


def common_party(party):
    return {
        "PostalAddress": postal_address(party.get("address") or {}),
        "PartyLegalEntity": group(RegistrationName=value(text(party.get("name"), 300))),
        "Contact": group(
            Telephone=value(_PHONE_MARKS.sub("", party.get("contactNumber") or "")),
            ElectronicMail=optional(party.get("email")),
        ),
    }


def industry(party):
    code, activity = party.get("msic"), text(party.get("businessActivityDescription"), 300)
    if not code and party.get("type") in NO_TRADE:
        code = NO_MSIC[0]
    if not activity and code == NO_MSIC[0]:
        activity = NO_MSIC[1]
    return value(code, name=activity)


def identification(party, general_tins, tourism_tax_number):
    numbers = (
        ("TIN", own_tin(party) or general_tin(party, general_tins)),
        registration(party),
        ("SST", text(party.get("sstRegistrationNumber")) or NOT_GIVEN),
        ("TTX", text(tourism_tax_number) or NOT_GIVEN),
    )
    return [{"ID": value(content, schemeID=scheme)} for scheme, content in numbers]


def own_tin(party):
    """As the portal compares them: upper case, without blanks and hyphens. Portal: 3.2"""
    return identifier(party.get("tin")).upper()


def identifier(number):
    """A number that identifies somebody, without blanks and hyphens. Portal: 3.2"""
    return _NUMBER_MARKS.sub("", number or "")


def general_tin(party, general_tins):
    """The TIN of a party without one, or None when it has to have its own. Portal: 12.9"""
    kind = party.get("type")
    if kind == "LOCAL_INDIVIDUAL" and scheme_of(party) not in ("NRIC", "ARMY"):
        return None
    return general_tins.get(kind)


def registration(party):
    """(scheme, number) of the one identity a party has to show. Portal: 10.3, 12.9"""
    number = (party.get("registration") or {}).get("number")
    if kept := identifier(number):
        return scheme_of(party), kept
    if own_tin(party) and not own_tin(party).startswith("EI"):
        return scheme_of(party), IDENTITY_UNKNOWN
    return "BRN", NOT_GIVEN


def scheme_of(party):
    given = (party.get("registration") or {}).get("type")
    return given or SCHEMES.get(party.get("type"), "BRN")


# Address. Portal: 10.4


def postal_address(address):
    return group(
        CityName=value(text(address.get("city"), 50)),
        PostalZone=optional(address.get("zipCode")),
        CountrySubentityCode=value(subentity(address)),
        AddressLine=[{"Line": value(line)} for line in address_lines(address)],
        Country=group(IdentificationCode=value(address.get("country"), listID="ISO3166-1", listAgencyID="6")),
    )


def subentity(address):
    """A state's code in Malaysia; abroad free text, where one of our codes would name a Malaysian state."""
    state = text(address.get("state"), 50)
    if is_abroad(address) and (not state or state.isdigit()):
        return STATE_ABROAD
    return state


def is_abroad(address):
    return (address.get("country") or HOME) != HOME


def address_lines(address):
    """The lines as given when they fit, else all of them wrapped into as many as there may be."""
    given = [address.get(name) or "" for name in ("line1", "line2", "line3")]
    lines = [kept for each in given for part in each.splitlines() if (kept := text(part))]
    if len(lines) <= ADDRESS_LINES and all(len(line) <= ADDRESS_LINE for line in lines):
        return lines
    return wrap(", ".join(line.rstrip(",") for line in lines), ADDRESS_LINE)[:ADDRESS_LINES]


# Document totals. Portal: 10.7


def document_adjustments(given, currency):
    return [
        adjustment(is_charge, round2(entry["amount"]), None, entry.get("reason"), currency)
        for name, is_charge in (("allowances", False), ("charges", True))
        for entry in given.get(name) or ()
    ]


def adjustment(is_charge, sum_, factor, reason, currency):
    """A discount or a charge; `factor` 0.05 is 5 %, None where an amount was agreed."""
    return group(
        ChargeIndicator=value(is_charge),
        AllowanceChargeReason=optional(reason, 300),
        MultiplierFactorNumeric=factor is not None and value(factor),
        Amount=amount(sum_, currency),
    )[0]


def document_tax(sums, reasons, currency):
    return group(
        TaxAmount=amount(sums.tax, currency),
        TaxSubtotal=[
            {
                "TaxableAmount": amount(of_type.taxable, currency),
                "TaxAmount": amount(of_type.tax, currency),
                "TaxCategory": tax_category(kind, reasons),
            }
            for kind, of_type in sums.by_tax_type.items()
        ],
    )


def exemption_reasons(items):
    """The lines' reasons, each once, for the one subtotal that the exempt lines share."""
    given = (text(item.get("taxExemptionReason"), 300) for item in items if is_exempt(item))
    return ", ".join(dict.fromkeys(filter(None, given)))


def is_exempt(item):
    return any(detail.get("taxType") == EXEMPT for detail in item.get("taxDetails") or ())


def tax_category(kind, exemption_reason):
    return group(
        ID=value(kind),
        TaxExemptionReason=kind == EXEMPT and optional(exemption_reason, 300),
        TaxScheme=TAX_SCHEME,
    )


def document_totals(sums, currency):
    return group(
        LineExtensionAmount=amount(sums.net_amount, currency),
        TaxExclusiveAmount=amount(sums.excluding_tax, currency),
        TaxInclusiveAmount=amount(sums.including_tax, currency),
        AllowanceTotalAmount=sums.allowances and amount(sums.allowances, currency),
        ChargeTotalAmount=sums.charges and amount(sums.charges, currency),
        PayableAmount=amount(sums.payable, currency),
    )


# Lines. Portal: 10.8


def invoice_line(index, item, amounts, currency):
    unit, origin = item["unit"], item.get("originCountry")
    return group(
        ID=value(text(item.get("id"), 50) or str(index)),
        InvoicedQuantity=quantity(unit["count"], unit.get("code")),
        LineExtensionAmount=amount(amounts.net, currency),
        AllowanceCharge=line_adjustments(amounts, currency),
        TaxTotal=line_tax(item, amounts, currency),
        Item=group(
            CommodityClassification=[
                {"ItemClassificationCode": value(code, listID="CLASS")} for code in item["classifications"]
            ],
            Description=value(text(item["description"], 300)),
            OriginCountry=origin and group(IdentificationCode=value(origin)),
        ),
        Price=group(PriceAmount=amount(unit["price"], currency)),
        ItemPriceExtension=group(Amount=amount(amounts.subtotal, currency)),
    )[0]


def quantity(count, unit_code):
    return value(count, unitCode=unit_code) if unit_code else value(count)


def line_adjustments(amounts, currency):
    given = ((False, amounts.discount), (True, amounts.charge))
    return [
        adjustment(is_charge, each.amount, each.factor, each.reason, currency) for is_charge, each in given if each
    ]


def line_tax(item, amounts, currency):
    unit_code, reason = item["unit"].get("code"), item.get("taxExemptionReason")
    return group(
        TaxAmount=amount(amounts.tax, currency),
        TaxSubtotal=[
            group(
                TaxableAmount=amount(tax.taxable, currency),
                TaxAmount=amount(tax.amount, currency),
                **tax_rate(tax, unit_code, currency),
                TaxCategory=tax_category(tax.type, reason),
            )[0]
            for tax in amounts.taxes
        ],
    )


def tax_rate(tax, unit_code, currency):
    if tax.percentage is not None:
        return {"Percent": value(tax.percentage)}
    return {
        "BaseUnitMeasure": quantity(tax.units, unit_code),
        "PerUnitAmount": amount(tax.per_unit, currency),
    }


# What has to be there before a document is built. Portal: 14.3

#: The code of an absent fact for which the portal has none.
REQUIRED = "Required"

#: member of a party, what it is, the code when the supplier or the buyer lacks it, the company's column
PARTY_FACTS = (
    ("/name", "name", "CF334", "CF333", "name"),
    ("/tin", "TIN", REQUIRED, REQUIRED, "tin_code"),
    ("/registration/number", "registration number", REQUIRED, REQUIRED, "registration_number"),
    ("/contactNumber", "phone number", "CF348", "CF349", "phone"),
    ("/address/line1", "first address line", "CF345", "CF346", "address"),
    ("/address/city", "city", "CF339", "CF340", "city"),
    ("/address/state", "state", "CF342", "CF343", "state"),
    ("/address/country", "country", "CF336", "CF337", "country"),
    ("/msic", "MSIC code", REQUIRED, REQUIRED, "msic_code"),
    ("/businessActivityDescription", "business activity", REQUIRED, REQUIRED, "business_activity_description"),
)

#: member of a line, what it is, the code when it is absent
LINE_FACTS = (
    ("/description", "description", REQUIRED),
    ("/classifications", "classification", "CF364"),
    ("/unit/price", "unit price", REQUIRED),
    ("/unit/count", "count", REQUIRED),
    ("/taxDetails", "tax type", REQUIRED),
)

#: Tax types that have no rate to give.
WITHOUT_RATE = {"06", EXEMPT}
RATES = {"percentage", "perUnitAmount"}


def missing(source, issuer):
    """The mandatory facts that are absent, as [{code, path, message}]; nothing is missing when it is empty.

    `path` points into the request body, or for the issuer names the column of the company: `/company/msic_code`.
    """
    supplier, buyer = parties(source, issuer)
    self_billed = is_self_billed(source)
    return [
        *missing_in_header(source),
        *missing_in_party(supplier, is_supplier=True, is_us=not self_billed),
        *missing_in_party(buyer, is_supplier=False, is_us=self_billed),
        *(lack for index, item in enumerate(source.get("lineItems") or ()) for lack in missing_in_line(index, item)),
    ]


def absence(code, path, message):
    return {"code": code, "path": path, "message": message}


def missing_in_header(source):
    currency = source.get("currencyCode") or HOME_CURRENCY
    if not source.get("lineItems"):
        yield absence(REQUIRED, "/lineItems", "The document has no line.")
    if currency != HOME_CURRENCY and not source.get("exchangeRate"):
        yield absence(REQUIRED, "/exchangeRate", f"A document in {currency} needs its exchange rate to MYR.")
    if source["type"] in NOTE_TYPES and not source.get("originals"):
        yield absence(REQUIRED, "/originals", "A note needs the document that it adjusts.")


def missing_in_party(party, is_supplier, is_us):
    who = "supplier" if is_supplier else "buyer"
    waived = waived_facts(party, is_supplier, is_us)
    for member, words, supplier_code, buyer_code, column in PARTY_FACTS:
        if member in waived or is_given(party, member):
            continue
        code = supplier_code if is_supplier else buyer_code
        path = f"/company/{column}" if is_us else f"/{who}{member}"
        yield absence(code, path, f"The {words} of the {'company' if is_us else who} is missing.")


def waived_facts(party, is_supplier, is_us):
    """The facts that this party may go without. Portal: 10.4, 10.14, 12.9"""
    kind, tins = party.get("type"), SUPPLIER_TINS if is_supplier else BUYER_TINS
    waivers = {
        "/tin": general_tin(party, tins),
        "/registration/number": not is_us and (own_tin(party) or kind != "LOCAL_INDIVIDUAL"),
        "/address/state": is_abroad(party.get("address") or {}),
        "/msic": not is_supplier or kind in NO_TRADE,
        "/businessActivityDescription": not is_supplier or industry(party)[0]["name"],
    }
    return {member for member, holds in waivers.items() if holds}


def missing_in_line(index, item):
    path, number = f"/lineItems/{index}", index + 1
    for member, words, code in LINE_FACTS:
        if not is_given(item, member):
            yield absence(code, path + member, f"The {words} of line {number} is missing.")
    for position, detail in enumerate(item.get("taxDetails") or ()):
        yield from missing_in_tax(detail, f"{path}/taxDetails/{position}", number)
    if is_exempt(item) and not is_given(item, "/taxExemptionReason"):
        yield absence(REQUIRED, f"{path}/taxExemptionReason", f"Line {number} is exempt and needs the reason.")


def missing_in_tax(detail, path, number):
    if not is_given(detail, "/taxType"):
        yield absence(REQUIRED, f"{path}/taxType", f"Line {number} has a tax without its type.")
    elif detail["taxType"] not in WITHOUT_RATE and not (detail.get("taxRate") or {}).keys() & RATES:
        yield absence(REQUIRED, f"{path}/taxRate", f"Line {number} has a tax without its rate.")


def is_given(holder, pointer):
    """Whether the member is there and is not blank or empty; 0 is there."""
    member = holder
    for name in pointer.split("/")[1:]:
        member = (member or {}).get(name)
    return bool(text(member) if isinstance(member, str) else member not in (None, [], {}))
