"""How a document's goods get to somebody, and how they are paid for. Portal: 10.5, 10.6"""

from service.documents.money import round2
from service.documents.ubl.elements import amount, group, optional, text, value
from service.documents.ubl.parties import recipient_party


def delivery(given, number, currency):
    """`number` is the document's own. The charge is told apart from the document's charges and in none of its totals."""
    return group(
        DeliveryParty=recipient_party(given),
        Shipment=shipment(given.get("charge"), number, currency),
    )


def shipment(charge, number, currency):
    return charge and group(
        ID=value(number),
        FreightAllowanceCharge=group(
            ChargeIndicator=value(True),
            AllowanceChargeReason=optional(charge.get("reason"), 300),
            Amount=amount(round2(charge["amount"]), currency),
        ),
    )


def payment_means(payment, own_account):
    """Nothing without a mode, which the element has to have; `own_account` where the payment names none."""
    account = text(payment.get("bankAccount")) or text(own_account)
    mode = text(payment.get("mode"))
    return mode and group(
        PaymentMeansCode=value(mode), PayeeFinancialAccount=account and group(ID=value(account))
    )


def payment_terms(payment):
    return group(Note=optional(payment.get("terms"), 300))
