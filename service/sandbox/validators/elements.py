"""The elements of a document: names, kinds, lengths, characters and code lists. Portal: 10

A dict is a group of elements, a text a basic element: its kind and the rules for its values. A
name that ends in `!` is required. `*` has the names of UBL 2.1 that are allowed and not checked.

    max   characters of a text
    code  of a text that is too long, for the supplier and the buyer
    form  name of the characters of a text in FORMS
    list  code list of the value, or of the unit of a number
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Shape: TypeAlias = "str | dict[str, Shape]"

#: Forms of texts. `/` and `:` are not in the published list of characters of a reason, but in the
#: authority's own examples.
FORMS = {
    "exporter": r"[\w -]*",
    "agreement": r"[\w ()-]*",
    "reason": r"[\w .,()/:-]*",
}

REFERENCE: dict[str, Shape] = {
    "ID": "text",
    "UUID": "text",
    "DocumentType": "text",
    "DocumentDescription": "text",
    "*": "IssueDate IssueTime DocumentTypeCode DocumentStatusCode Attachment ValidityPeriod "
    "IssuerParty",
}

PARTY: dict[str, Shape] = {
    "IndustryClassificationCode": "code",
    "PartyIdentification": {"ID!": "text"},
    "PostalAddress": {
        "AddressLine": {"Line": "text max=150 code=CF345/CF346"},
        "PostalZone": "text max=50",
        "CityName": "text max=50",
        "CountrySubentityCode": "text max=50",
        "Country": {"IdentificationCode": "text", "Name": "text"},
        "*": "ID AddressTypeCode Floor Room StreetName AdditionalStreetName BlockName BuildingName "
        "BuildingNumber Department District Region CountrySubentity",
    },
    "PartyLegalEntity": {
        "RegistrationName": "text max=300 code=CF334/CF333",
        "*": "CompanyID RegistrationAddress",
    },
    "Contact": {
        "Telephone": "text",
        "ElectronicMail": "text max=320 code=CF401",
        "*": "ID Name Telefax Note",
    },
    "*": "WebsiteURI EndpointID PartyName Language PhysicalLocation PartyTaxScheme Person "
    "AgentParty",
}

ACCOUNT: dict[str, Shape] = {
    "AdditionalAccountID": "text",
    "Party!": PARTY,
    "*": "CustomerAssignedAccountID SupplierAssignedAccountID DataSendingCapability",
}

ALLOWANCE: dict[str, Shape] = {
    "ChargeIndicator!": "boolean",
    "AllowanceChargeReason": "text max=300",
    "MultiplierFactorNumeric": "number",
    "Amount!": "amount",
    "*": "ID AllowanceChargeReasonCode SequenceNumeric BaseAmount TaxCategory",
}

TAX: dict[str, Shape] = {
    "TaxAmount!": "amount",
    "TaxSubtotal!": {
        "TaxableAmount": "amount",
        "TaxAmount!": "amount",
        "Percent": "number",
        "BaseUnitMeasure": "number list=units",
        "PerUnitAmount": "amount",
        "TaxCategory!": {
            "ID!": "code list=tax_types",
            "TaxExemptionReason": "text max=300 form=reason",
            "TaxScheme!": {"ID!": "code", "*": "Name TaxTypeCode CurrencyCode"},
            "*": "Name Percent TaxExemptionReasonCode",
        },
        "*": "CalculationSequenceNumeric TransactionCurrencyTaxAmount",
    },
    "*": "RoundingAmount TaxEvidenceIndicator TaxIncludedIndicator",
}

LINE: dict[str, Shape] = {
    "ID!": "text max=50",
    "InvoicedQuantity": "number list=units",
    "LineExtensionAmount!": "amount",
    "AllowanceCharge": ALLOWANCE,
    "TaxTotal!": TAX,
    "Item!": {
        "CommodityClassification": {
            "ItemClassificationCode!": "code list=classifications",
            "*": "NatureCode CommodityCode",
        },
        "Description": "text max=300",
        "OriginCountry": {"IdentificationCode!": "code list=countries", "*": "Name"},
        "*": "Name PackQuantity PackSizeNumeric Keyword BrandName ModelName "
        "BuyersItemIdentification SellersItemIdentification StandardItemIdentification "
        "AdditionalItemProperty ClassifiedTaxCategory",
    },
    "Price!": {
        "PriceAmount!": "amount",
        "*": "BaseQuantity PriceChangeReason PriceTypeCode PriceType AllowanceCharge",
    },
    "ItemPriceExtension!": {"Amount!": "amount", "*": "TaxTotal"},
    "*": "UUID Note TaxPointDate AccountingCost AccountingCostCode InvoicePeriod "
    "OrderLineReference DespatchLineReference DocumentReference Delivery PaymentTerms "
    "SubInvoiceLine FreeOfChargeIndicator",
}

INVOICE: dict[str, Shape] = {
    "ID!": "text max=50",
    "IssueDate!": "date",
    "IssueTime!": "time",
    "InvoiceTypeCode!": "code",
    "DocumentCurrencyCode": "code list=currencies",
    "TaxCurrencyCode": "code list=currencies",
    "TaxExchangeRate": {
        "SourceCurrencyCode!": "code list=currencies",
        "TargetCurrencyCode!": "code list=currencies",
        "CalculationRate": "number",
        "*": "SourceCurrencyBaseRate TargetCurrencyBaseRate MathematicOperatorCode Date",
    },
    "InvoicePeriod": {
        "StartDate": "date",
        "EndDate": "date",
        "Description": "text max=50",
        "*": "StartTime EndTime DescriptionCode DurationMeasure",
    },
    "BillingReference": {
        "InvoiceDocumentReference": {**REFERENCE, "UUID": "text max=26", "ID": "text max=50"},
        "AdditionalDocumentReference": {**REFERENCE, "ID": "text max=150"},
        "*": "CreditNoteDocumentReference DebitNoteDocumentReference BillingReferenceLine",
    },
    "AdditionalDocumentReference": {
        **REFERENCE,
        "ID": "text max=1000",
        "DocumentDescription": "text max=300 form=agreement",
    },
    "AccountingSupplierParty!": {
        **ACCOUNT,
        "AdditionalAccountID": "text max=300 form=exporter",
        "Party!": {**PARTY, "IndustryClassificationCode": "code list=msic"},
    },
    "AccountingCustomerParty!": ACCOUNT,
    "Delivery": {
        "DeliveryParty": PARTY,
        "Shipment": {
            "ID": "text max=50",
            "FreightAllowanceCharge": ALLOWANCE,
            "*": "Consignment GoodsItem Delivery",
        },
        "*": "ID ActualDeliveryDate ActualDeliveryTime DeliveryAddress DeliveryLocation",
    },
    "PaymentMeans": {
        "PaymentMeansCode!": "code list=payment_modes",
        "PayeeFinancialAccount": {
            "ID": "text max=150",
            "*": "Name CurrencyCode FinancialInstitutionBranch",
        },
        "*": "ID PaymentDueDate PaymentChannelCode InstructionID InstructionNote PaymentID",
    },
    "PaymentTerms": {
        "Note": "text max=300",
        "*": "ID PaymentMeansID PaymentDueDate Amount SettlementDiscountPercent SettlementPeriod",
    },
    "PrepaidPayment": {
        "ID": "text max=150",
        "PaidAmount": "amount",
        "PaidDate": "date",
        "PaidTime": "time",
        "*": "ReceivedDate InstructionID",
    },
    "AllowanceCharge": ALLOWANCE,
    "TaxTotal!": TAX,
    "LegalMonetaryTotal!": {
        "LineExtensionAmount": "amount",
        "AllowanceTotalAmount": "amount",
        "ChargeTotalAmount": "amount",
        "TaxExclusiveAmount!": "amount",
        "TaxInclusiveAmount!": "amount",
        "PrepaidAmount": "amount",
        "PayableRoundingAmount": "amount",
        "PayableAmount!": "amount",
    },
    "InvoiceLine!": LINE,
    "*": "UBLExtensions Signature "
    "UBLVersionID CustomizationID ProfileID ProfileExecutionID CopyIndicator UUID DueDate Note "
    "TaxPointDate PricingCurrencyCode PaymentCurrencyCode AccountingCost AccountingCostCode "
    "LineCountNumeric BuyerReference OrderReference DespatchDocumentReference "
    "ReceiptDocumentReference OriginatorDocumentReference ContractDocumentReference "
    "ProjectReference PayeeParty BuyerCustomerParty SellerSupplierParty TaxRepresentativeParty "
    "DeliveryTerms PricingExchangeRate PaymentExchangeRate WithholdingTaxTotal",
}


@dataclass(frozen=True, slots=True)
class Element:
    """An element; its kind is `group`, `any`, or that of a basic element."""

    kind: str
    is_required: bool = False
    members: "Mapping[str, Element]" = field(default_factory=dict[str, "Element"])
    rules: Mapping[str, str] = field(default_factory=dict[str, str])


Group = Mapping[str, Element]


def compile_group(shape: dict[str, Shape]) -> Group:
    """Return the elements of a group by their names."""
    group: dict[str, Element] = {}
    for name, inner in shape.items():
        is_required = name.endswith("!")
        if isinstance(inner, dict):
            group[name.rstrip("!")] = Element("group", is_required, compile_group(inner))
        elif name == "*":
            group |= dict.fromkeys(inner.split(), Element("any"))
        else:
            kind, *rules = inner.split()
            named = dict(rule.split("=") for rule in rules)
            group[name.rstrip("!")] = Element(kind, is_required, rules=named)
    return group


ELEMENTS = compile_group(INVOICE)


def with_rule(name: str, group: Group = ELEMENTS, path: str = "") -> Iterator[tuple[str, Element]]:
    """Yield (path, element) of every basic element that has a rule of the name."""
    for each, element in group.items():
        yield from with_rule(name, element.members, f"{path}{each}.")
        if name in element.rules:
            yield f"{path}{each}", element


#: Namespaces of the root object.
NAMESPACES = {
    "_D": "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2",
    "_A": "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2",
    "_B": "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2",
}
EXTENSIONS = "urn:oasis:names:specification:ubl:schema:xsd:CommonExtensionComponents-2"
