-- Inlined into the views.
create or replace function document_totals(
    excluding_tax numeric, including_tax numeric, payable_amount numeric, net_amount numeric)
  returns json
  stable parallel safe language sql
  return json_build_object(
    'excludingTax', excluding_tax,
    'includingTax', including_tax,
    'payableAmount', payable_amount,
    'netAmount', net_amount);
comment on function document_totals is
  'The totals of a document, as records show them.';
