"""Paths of the portal's document as pointers into a request."""

import pytest

from service.documents.ubl.pointers import find_pointer, locate_errors


@pytest.mark.parametrize(
    "path, kind, pointer",
    [
        ("Invoice.IssueDate AND Invoice.IssueTime", "01", "/issueDateTime"),
        ("Invoice.IssueDate", "02", "/adjustmentNoteIssueDate"),
        ("#/Invoice[0].DocumentCurrencyCode", "01", "/currencyCode"),
        (
            "$.Invoice[*].AccountingCustomerParty[*].Party[*].PostalAddress[*]"
            ".CountrySubentityCode[*]._",
            "01",
            "/buyer/address/state",
        ),
        (
            "Invoice.AccountingSupplierParty.Party.PostalAddress.CountrySubentityCode",
            "01",
            "/company/state",
        ),
        (
            "Invoice.AccountingSupplierParty.Party.Contact.Telephone",
            "11",
            "/supplier/contactNumber",
        ),
        ("Invoice.AccountingCustomerParty.Party.Contact.Telephone", "11", "/company/phone"),
        ("Invoice.AccountingCustomerParty.Party.Contact.Telephone", "02", ""),
        ("$.Invoice[0].InvoiceLine[3].Item[0].Description", "01", "/lineItems/3/description"),
        ("$.Invoice[*].InvoiceLine[*].Price", "01", "/lineItems"),
        ("$.Invoice[0].InvoiceLine[12].Unknown", "01", "/lineItems/12"),
        ("Invoice.PaymentMeans.PaymentMeansCode", "01", "/payment/mode"),
        ("Invoice.PrepaidPayment.PaidAmount", "02", "/prepayment"),
        ("Invoice.LegalMonetaryTotal.PayableAmount", "04", "/lineItems"),
        ("Invoice.LegalMonetaryTotal.PayableRoundingAmount", "01", "/payableRoundingAmount"),
        ("Invoice", "01", ""),
        ("documentHash", "01", ""),
        ("", "01", ""),
    ],
)
def test_an_element_has_the_pointer_of_its_member(path: str, kind: str, pointer: str) -> None:
    assert find_pointer(path, kind) == pointer


def test_only_located_errors_have_a_pointer() -> None:
    errors = [{"path": "Invoice.ID", "code": "A"}, {"path": None, "code": "B"}]
    assert locate_errors(errors, "01") == [
        {"path": "Invoice.ID", "code": "A", "pointer": "/code"},
        {"path": None, "code": "B"},
    ]
