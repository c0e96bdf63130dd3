"""Sources of documents for tests: an issuer, its partners, and one for every golden document.

A source is the body of a request, with the members that the service adds: `selfBilled` and
`originals` of a note, the period of a consolidated invoice.
"""

from decimal import Decimal
from typing import Any

ISSUER = {
    "name": "Perabot Seri Maju Sdn. Bhd.",
    "tin_code": "C4821093650",
    "registration_number": "201801024680",
    "registration_type": "BRN",
    "sst_registration_number": "W10-1901-32000458",
    "tourism_tax_registration_number": None,
    "business_activity_description": "Manufacture of wooden and cane furniture",
    "msic_code": "31001",
    "country": "MYS",
    "state": "01",
    "zip_code": "84000",
    "city": "Muar",
    "address": "PTD 1203, Jalan Perindustrian 4\nKawasan Perindustrian Bukit Bakri",
    "phone": "+60 (6) 987-1234",
    "email": "akaun@serimaju.example",
    "bank_account": "512345678901",
    "exporter_certified_number": None,
}
EXPORTER = {**ISSUER, "exporter_certified_number": "MY-CE 00123"}
RESTAURANT = {
    "type": "LOCAL_COMPANY",
    "name": "Tiga Rasa Restoran Sdn. Bhd.",
    "tin": "C5510387420",
    "registration": {"type": "BRN", "number": "202101033579"},
    "contactNumber": "+60355443322",
    "address": {
        "line1": "12 Jalan Kristal 7/68",
        "city": "Shah Alam",
        "state": "10",
        "zipCode": "40150",
        "country": "MYS",
    },
}
MILL = {
    "type": "FOREIGN_COMPANY",
    "name": "Foshan Timber Export Co. Ltd.",
    "contactNumber": "+86 757 1234 5678",
    "address": {
        "line1": "88 Huanshi Road",
        "city": "Foshan",
        "zipCode": "528000",
        "country": "CHN",
    },
}
ADDRESS = RESTAURANT["address"]


def tax(kind: str, percentage: Decimal | int) -> dict[str, Any]:
    return {"taxType": kind, "taxRate": {"percentage": percentage}}


def line(**changes: Any) -> dict[str, Any]:
    """Return a line item, with some members replaced."""
    item = {
        "id": "1",
        "description": "Rubberwood dining chair",
        "classifications": ["022"],
        "unit": {"code": "H87", "price": Decimal("145.00"), "count": 4},
        "taxDetails": [tax("06", 0)],
    }
    return {**item, **changes}


WORK = line(
    id="2",
    description="On-site refinishing",
    classifications=["030"],
    unit={"code": "HUR", "price": Decimal("80.00"), "count": 6},
    taxDetails=[tax("02", 8)],
)
EXAMPLE = {"type": "INVOICE", "buyer": RESTAURANT, "lineItems": [line()]}

PUBLIC = {"type": "GENERAL_PUBLIC"}
SELF_BILLED = {
    "type": "SELF_BILLED_INVOICE",
    "supplier": MILL,
    "lineItems": [
        line(description="Sawn rubberwood", classifications=["034"], originCountry="CHN")
    ],
}
ORIGINALS = [{"uuid": "7G3KX2M9QPWZ41VTB8RHNYDC10", "number": "INV-2026-000123"}]
ONE_CHAIR = line(unit={"code": "H87", "price": Decimal("145.00"), "count": 1})


def note(kind: str, **changes: Any) -> dict[str, Any]:
    """Return a note for one chair against the example."""
    return {
        "type": kind,
        "selfBilled": False,
        "buyer": RESTAURANT,
        "originals": ORIGINALS,
        "lineItems": [ONE_CHAIR],
        **changes,
    }


def self_billed_note(kind: str) -> dict[str, Any]:
    original = {"uuid": ORIGINALS[0]["uuid"], "number": "SB-2026-000017"}
    item = {**SELF_BILLED["lineItems"][0], "unit": ONE_CHAIR["unit"]}
    return {
        **note(kind, selfBilled=True, supplier=MILL, originals=[original], lineItems=[item]),
        "buyer": None,
    }


def receipts(first: str, last: str, price: str) -> dict[str, Any]:
    """Return the line of a consolidated invoice."""
    unit = {"code": "C62", "price": Decimal(price), "count": 1}
    return line(
        description=f"Receipts {first} - {last}",
        classifications=["004"],
        unit=unit,
        taxDetails=[tax("02", 8)],
    )


def consolidated(kind: str, member: str, prefix: str) -> dict[str, Any]:
    """Return a consolidated invoice whose public party is in `member`."""
    item = receipts(f"{prefix}00500", f"{prefix}00502", "150.00")
    month = {"start": "2026-08-01", "end": "2026-08-31", "frequency": "Monthly"}
    return {"type": kind, member: PUBLIC, "billingPeriod": month, "lineItems": [item]}


EVERYTHING = {
    "type": "INVOICE",
    "buyer": {
        **MILL,
        "registration": {"type": "BRN", "number": "91440600MA4W"},
        "email": "buyer@foshan.example",
    },
    "currencyCode": "USD",
    "exchangeRate": Decimal("4.2155"),
    "billingPeriod": {"start": "2026-09-01", "end": "2026-09-30", "frequency": "Half-yearly"},
    "references": [
        {"type": "INCOTERMS", "id": "FOB"},
        {"type": "K2", "id": "K2-2209"},
        {"type": "CUSTOMS_FORM", "id": "K1-2209, K1-2210"},
        {"type": "BILL", "id": "DO-88123"},
        {"type": "FTA", "description": "ASEAN-China Free Trade Area (ACFTA)"},
        {"type": "CUSTOMS_FORM", "id": "K9-7"},
        {"type": "BILL", "id": "PO-4711"},
    ],
    "payment": {"mode": "03", "terms": "30 days from invoice date"},
    "prepayment": {
        "amount": Decimal("100.005"),
        "date": "2026-09-02",
        "time": "04:00:00Z",
        "reference": "DEP-771",
    },
    "payableRoundingAmount": Decimal("-0.02"),
    "delivery": {
        "name": "Guangzhou Harbour Stores",
        "registration": {"type": "BRN", "number": "91440101MA59"},
        "address": {
            "line1": "Gate 4",
            "line2": "1 Ganghu Road",
            "city": "Guangzhou",
            "state": "Guangdong",
            "country": "CHN",
        },
        "charge": {"amount": Decimal("88.005"), "reason": "Sea freight"},
    },
    "invoiceLevelAllowanceCharge": {
        "allowances": [{"amount": 50, "reason": "Loyalty rebate"}, {"amount": Decimal("0.995")}],
        "charges": [{"amount": 120, "reason": "Lorry to the harbour"}],
    },
    "lineItems": [
        line(
            unit={"code": "H87", "price": Decimal("33.335"), "count": Decimal("1.5")},
            classifications=["022", "005"],
            tariffCode="9401.61.0000",
            discount={"amount": Decimal("0.50"), "reason": "Scratch"},
            charge={"rate": Decimal("2.5"), "reason": "Crate"},
            taxDetails=[tax("01", 10), tax("02", Decimal("8.5"))],
            originCountry="MYS",
        ),
        line(
            id="2",
            description="Room for the fitter",
            unit={"code": "DAY", "price": Decimal("150.00"), "count": 3},
            taxDetails=[
                tax("02", 8),
                {"taxType": "03", "taxRate": {"perUnitAmount": Decimal("10.00")}},
            ],
        ),
        line(id="3", taxDetails=[tax("E", 10)], taxExemptionReason="Export certificate 014-2026"),
        line(id="4", taxDetails=[tax("E", 0)], taxExemptionReason="Sales Tax Order, item 7"),
    ],
}

#: golden file -> the source of its document
GOLDEN: dict[str, dict[str, Any]] = {
    "invoice": {
        **EXAMPLE,
        "lineItems": [
            line(
                unit={"code": "H87", "price": Decimal("145.00"), "count": 12},
                discount={"rate": 5, "reason": "5% volume discount"},
                taxDetails=[tax("01", 10)],
                originCountry="MYS",
            ),
            WORK,
        ],
        "invoiceLevelAllowanceCharge": {
            "allowances": [{"amount": 50, "reason": "Loyalty rebate"}],
            "charges": [{"amount": 120, "reason": "Lorry delivery"}],
        },
    },
    "self_billed_invoice": SELF_BILLED,
    "usd_invoice": {
        "type": "INVOICE",
        "buyer": {**MILL, "email": "buyer@foshan.example"},
        "currencyCode": "USD",
        "exchangeRate": Decimal("4.2155"),
        "lineItems": [
            line(
                unit={"code": "H87", "price": Decimal("33.335"), "count": Decimal("1.5")},
                discount={"amount": Decimal("0.50"), "reason": "Scratch"},
                charge={"rate": Decimal("2.5"), "reason": "Crate"},
                taxDetails=[tax("01", 10), tax("02", Decimal("8.5"))],
            ),
            line(
                id="2", taxDetails=[tax("E", 10)], taxExemptionReason="Export certificate 014-2026"
            ),
        ],
    },
    "credit_note": note("CREDIT_NOTE", originals=[*ORIGINALS, {"number": "OLD-7"}]),
    "debit_note": note("DEBIT_NOTE"),
    "refund_note": note(
        "REFUND_NOTE",
        lineItems=[line(taxDetails=[tax("E", 10)], taxExemptionReason="Sales Tax Order, item 7")],
    ),
    "self_billed_credit_note": self_billed_note("CREDIT_NOTE"),
    "self_billed_debit_note": self_billed_note("DEBIT_NOTE"),
    "self_billed_refund_note": self_billed_note("REFUND_NOTE"),
    "consolidated_invoice": consolidated("CONSOLIDATED_INVOICE", "buyer", "INV-"),
    "consolidated_self_billed_invoice": consolidated(
        "CONSOLIDATED_SELF_BILLED_INVOICE", "supplier", "SB-"
    ),
    "everything": EVERYTHING,
}

#: golden file -> its company, if not ISSUER
ISSUERS = {"everything": EXPORTER}
