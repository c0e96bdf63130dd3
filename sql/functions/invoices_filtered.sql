-- A plain SQL function, which PostgreSQL inlines: the plan of the caller has only the conditions of
-- the filters that are present, and can use their indexes.
create or replace function invoices_filtered(
    for_company bigint, filters jsonb, described bigint[])
  returns table (
    id bigint,
    issue_date timestamptz,
    code bigint,
    updated_at timestamptz,
    amount numeric,
    buyer json)
  stable language sql as $$
  select i.id, i.issue_date, i.code, i.updated_at, i.payable_amount, i.buyer
    from invoices i
   where i.company_id = for_company and i.deleted_at is null
     and (not filters ? 'status'
          or strpos(filters ->> 'status', ',') = 0
             and i.status = filters ->> 'status'
          or strpos(filters ->> 'status', ',') > 0
             and i.status = any (string_to_array(filters ->> 'status', ',')))
     and (not filters ? 'type' or i.type = filters ->> 'type')
     and (not filters ? 'issued_from' or i.issue_date >= (filters ->> 'issued_from')::timestamptz)
     and (not filters ? 'issued_to' or i.issue_date <= (filters ->> 'issued_to')::timestamptz)
     and (not filters ? 'updated_from' or i.updated_at >= (filters ->> 'updated_from')::timestamptz)
     and (not filters ? 'amount_from' or i.payable_amount >= (filters ->> 'amount_from')::numeric)
     and (not filters ? 'amount_to' or i.payable_amount <= (filters ->> 'amount_to')::numeric)
     and (not filters ? 'reference' or i.reference = filters ->> 'reference')
     and (described is null or i.id = any (described))
$$;
comment on function invoices_filtered is
  'The invoices that match the filters of a list other than the search text. `described` are the '
  'ids of those with the metadata, null without such a filter.';
