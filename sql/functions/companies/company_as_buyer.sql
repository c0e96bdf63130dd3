-- Not inlined, so that only the records of self-billed invoices pay for the look-up.
create or replace function company_as_buyer(company_id bigint) returns json
  stable language sql
  return (select as_buyer(c) from companies c where c.id = company_as_buyer.company_id);
comment on function company_as_buyer is
  'The company with this id as the buyer of a self-billed invoice.';
