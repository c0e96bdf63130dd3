"""The structure of a document: element names, their kinds, and which are required. Portal: 10

A name that ends in `!` is required. A dict is a group, a word is the kind of a basic element.
Elements of the kind `any` are not checked.
"""

from typing import TypeAlias

Shape: TypeAlias = "str | dict[str, Shape]"


def any_of(names: str) -> dict[str, Shape]:
    """Return elements of UBL 2.1 that are allowed and not checked."""
    return dict.fromkeys(names.split(), "any")


REFERENCE: dict[str, Shape] = {
    "ID": "text",
    "UUID": "text",
    "DocumentType": "text",
    "DocumentDescription": "text",
    **any_of(
        "IssueDate IssueTime DocumentTypeCode DocumentStatusCode Attachment ValidityPeriod "
        "IssuerParty"
    ),
}

ADDRESS: dict[str, Shape] = {
    "AddressLine": {"Line": "text"},
    "PostalZone": "text",
    "CityName": "text",
    "CountrySubentityCode": "text",
    "Country": {"IdentificationCode": "text", "Name": "text"},
    **any_of(
        "ID AddressTypeCode Floor Room StreetName AdditionalStreetName BlockName BuildingName "
        "BuildingNumber Department District Region CountrySubentity"
    ),
}

PARTY: dict[str, Shape] = {
    "IndustryClassificationCode": "code",
    "PartyIdentification": {"ID!": "text"},
    "PostalAddress": ADDRESS,
    "PartyLegalEntity": {"RegistrationName": "text", **any_of("CompanyID RegistrationAddress")},
    "Contact": {"Telephone": "text", "ElectronicMail": "text", **any_of("ID Name Telefax Note")},
    **any_of(
        "WebsiteURI EndpointID PartyName Language PhysicalLocation PartyTaxScheme Person AgentParty"
    ),
}

ACCOUNT: dict[str, Shape] = {
    "AdditionalAccountID": "text",
    "Party!": PARTY,
    **any_of("CustomerAssignedAccountID SupplierAssignedAccountID DataSendingCapability"),
}

ALLOWANCE: dict[str, Shape] = {
    "ChargeIndicator!": "boolean",
    "AllowanceChargeReason": "text",
    "MultiplierFactorNumeric": "number",
    "Amount!": "amount",
    **any_of("ID AllowanceChargeReasonCode SequenceNumeric BaseAmount TaxCategory"),
}

CATEGORY: dict[str, Shape] = {
    "ID!": "code",
    "TaxExemptionReason": "text",
    "TaxScheme!": {"ID!": "code", **any_of("Name TaxTypeCode CurrencyCode")},
    **any_of("Name Percent TaxExemptionReasonCode"),
}

TAX: dict[str, Shape] = {
    "TaxAmount!": "amount",
    "TaxSubtotal!": {
        "TaxableAmount": "amount",
        "TaxAmount!": "amount",
        "Percent": "number",
        "BaseUnitMeasure": "number",
        "PerUnitAmount": "amount",
        "TaxCategory!": CATEGORY,
        **any_of("CalculationSequenceNumeric TransactionCurrencyTaxAmount"),
    },
    **any_of("RoundingAmount TaxEvidenceIndicator TaxIncludedIndicator"),
}

EXCHANGE: dict[str, Shape] = {
    "SourceCurrencyCode!": "code",
    "TargetCurrencyCode!": "code",
    "CalculationRate": "number",
    **any_of("SourceCurrencyBaseRate TargetCurrencyBaseRate MathematicOperatorCode Date"),
}

LINE: dict[str, Shape] = {
    "ID!": "text",
    "InvoicedQuantity": "number",
    "LineExtensionAmount!": "amount",
    "AllowanceCharge": ALLOWANCE,
    "TaxTotal!": TAX,
    "Item!": {
        "CommodityClassification": {
            "ItemClassificationCode!": "code",
            **any_of("NatureCode CommodityCode"),
        },
        "Description": "text",
        "OriginCountry": {"IdentificationCode!": "code", **any_of("Name")},
        **any_of(
            "Name PackQuantity PackSizeNumeric Keyword BrandName ModelName "
            "BuyersItemIdentification SellersItemIdentification StandardItemIdentification "
            "AdditionalItemProperty ClassifiedTaxCategory"
        ),
    },
    "Price!": {
        "PriceAmount!": "amount",
        **any_of("BaseQuantity PriceChangeReason PriceTypeCode PriceType AllowanceCharge"),
    },
    "ItemPriceExtension!": {"Amount!": "amount", **any_of("TaxTotal")},
    **any_of("UUID Note TaxPointDate AccountingCost AccountingCostCode InvoicePeriod"),
    **any_of("OrderLineReference DespatchLineReference"),
    **any_of("DocumentReference Delivery PaymentTerms SubInvoiceLine FreeOfChargeIndicator"),
}

INVOICE: dict[str, Shape] = {
    "ID!": "text",
    "IssueDate!": "date",
    "IssueTime!": "time",
    "InvoiceTypeCode!": "code",
    "DocumentCurrencyCode": "code",
    "TaxCurrencyCode": "code",
    "TaxExchangeRate": EXCHANGE,
    "InvoicePeriod": {
        "StartDate": "date",
        "EndDate": "date",
        "Description": "text",
        **any_of("StartTime EndTime DescriptionCode DurationMeasure"),
    },
    "BillingReference": {
        "InvoiceDocumentReference": REFERENCE,
        "AdditionalDocumentReference": REFERENCE,
        **any_of("CreditNoteDocumentReference DebitNoteDocumentReference BillingReferenceLine"),
    },
    "AdditionalDocumentReference": REFERENCE,
    "AccountingSupplierParty!": ACCOUNT,
    "AccountingCustomerParty!": ACCOUNT,
    "Delivery": {
        "DeliveryParty": PARTY,
        "Shipment": {
            "ID": "text",
            "FreightAllowanceCharge": ALLOWANCE,
            **any_of("Consignment GoodsItem Delivery"),
        },
        **any_of("ID ActualDeliveryDate ActualDeliveryTime DeliveryAddress DeliveryLocation"),
    },
    "PaymentMeans": {
        "PaymentMeansCode!": "code",
        "PayeeFinancialAccount": {
            "ID": "text",
            **any_of("Name CurrencyCode FinancialInstitutionBranch"),
        },
        **any_of("ID PaymentDueDate PaymentChannelCode InstructionID InstructionNote PaymentID"),
    },
    "PaymentTerms": {
        "Note": "text",
        **any_of(
            "ID PaymentMeansID PaymentDueDate Amount SettlementDiscountPercent SettlementPeriod"
        ),
    },
    "PrepaidPayment": {
        "ID": "text",
        "PaidAmount": "amount",
        "PaidDate": "date",
        "PaidTime": "time",
        **any_of("ReceivedDate InstructionID"),
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
    "UBLExtensions": "any",
    "Signature": "any",
    **any_of(
        "UBLVersionID CustomizationID ProfileID ProfileExecutionID CopyIndicator UUID DueDate Note "
        "TaxPointDate PricingCurrencyCode PaymentCurrencyCode AccountingCost AccountingCostCode "
        "LineCountNumeric BuyerReference OrderReference DespatchDocumentReference "
        "ReceiptDocumentReference OriginatorDocumentReference ContractDocumentReference "
        "ProjectReference PayeeParty BuyerCustomerParty SellerSupplierParty TaxRepresentativeParty "
        "DeliveryTerms PricingExchangeRate PaymentExchangeRate WithholdingTaxTotal"
    ),
}

#: Namespaces of the root object.
NAMESPACES = {
    "_D": "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2",
    "_A": "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2",
    "_B": "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2",
}
EXTENSIONS = "urn:oasis:names:specification:ubl:schema:xsd:CommonExtensionComponents-2"
