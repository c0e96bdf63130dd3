"""Build the delivery and the payment of a document. Portal: 10.5, 10.6"""

from collections.abc import Mapping
from decimal import Decimal

from service.documents.money import round_cents
from service.documents.ubl.elements import Element, amount, clean_text, group, optional, value
from service.documents.ubl.parties import build_recipient
from service.json_types import JsonMapping


def build_delivery(given: JsonMapping, number: str, currency: str) -> Element | None:
    """Build the delivery of the document with this number.

    The charge for the delivery is not part of the document's charges and totals.
    """
    charge: JsonMapping | None = given.get("charge")
    return group(
        DeliveryParty=build_recipient(given),
        Shipment=charge
        and group(
            ID=value(number),
            FreightAllowanceCharge=group(
                ChargeIndicator=value(True),
                AllowanceChargeReason=optional(charge.get("reason"), 300),
                Amount=amount(round_cents(charge["amount"]), currency),
            ),
        ),
    )


def build_payment_means(payment: Mapping[str, str], own_account: str | None) -> Element | None:
    """Build the payment means, or return None without a mode, which is mandatory.

    `own_account` is the default of the bank account.
    """
    account = clean_text(payment.get("bankAccount")) or clean_text(own_account)
    mode = clean_text(payment.get("mode"))
    if not mode:
        return None
    return group(
        PaymentMeansCode=value(mode), PayeeFinancialAccount=account and group(ID=value(account))
    )


def build_prepayment(prepayment: JsonMapping, prepaid: Decimal, currency: str) -> Element | None:
    """Build the prepayment, or return None without one.

    `prepaid` is its amount, rounded as in the totals.
    """
    if not prepayment:
        return None
    return group(
        ID=optional(prepayment.get("reference"), 150),
        PaidAmount=amount(prepaid, currency),
        PaidDate=optional(prepayment.get("date")),
        PaidTime=optional(prepayment.get("time")),
    )
