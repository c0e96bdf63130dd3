// The amounts of an invoice, computed from its lines in exact decimals.

import Big from "big.js";

const ZERO = new Big(0);
const HALF_UP = 1;

const round = (number) => number.round(2, HALF_UP);
const sum = (entries) => (entries ?? []).reduce((total, { amount }) => total.plus(round(new Big(amount))), ZERO);

function adjust(adjustment, subtotal) {
  if (!adjustment) return ZERO;
  if (adjustment.rate !== undefined) return round(subtotal.times(adjustment.rate).div(100));
  return round(new Big(adjustment.amount));
}

function computeNet({ unit, discount, charge }) {
  const subtotal = round(new Big(unit.price).times(unit.count));
  return subtotal.minus(adjust(discount, subtotal)).plus(adjust(charge, subtotal));
}

function computeTax({ taxType, taxRate = {} }, net, count) {
  if (taxType === "E") return ZERO;
  if (taxRate.perUnitAmount !== undefined) {
    return round(new Big(taxRate.perUnitAmount).times(taxRate.unitCount ?? count));
  }
  return round(net.times(taxRate.percentage ?? 0).div(100));
}

// Returns the amounts as text with two decimals, or null if one of them is negative.
export function computeAmounts(body) {
  let net = ZERO;
  let tax = ZERO;
  for (const item of body.lineItems) {
    const amount = computeNet(item);
    if (amount.lt(0)) return null;
    net = net.plus(amount);
    for (const detail of item.taxDetails ?? []) {
      tax = tax.plus(computeTax(detail, amount, item.unit.count));
    }
  }
  const adjustments = body.invoiceLevelAllowanceCharge;
  const excluding = net.minus(sum(adjustments?.allowances)).plus(sum(adjustments?.charges));
  if (excluding.lt(0)) return null;
  const including = excluding.plus(tax).toFixed(2);
  return { net: net.toFixed(2), excluding: excluding.toFixed(2), including, payable: including };
}
