create or replace function documents_numbered(company bigint, number text)
  returns table (
    invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint, type text,
    status text, issue_date timestamptz, currency_code text, payable_amount numeric,
    deleted_at timestamptz)
  stable parallel safe language sql
  begin atomic
    with setting as (
      select c.setting, (c.setting ->> 'PREFIX_DIGIT_COUNT')::int as digits
        from companies c
       where c.id = company
    ), codes as (
      select array(select t.digits::bigint
                     from (select right(number, n) as digits from generate_series(1, 12) n) t
                    where t.digits ~ '^[0-9]+$') as possible
    ), submitted as (
      select distinct d.invoice_id, d.adjustment_note_id, d.consolidated_invoice_id
        from submitted_documents d
       where d.company_id = company and d.number = documents_numbered.number
    )
    select i.id, null::bigint, null::bigint, i.type, i.status, i.issue_date, i.currency_code,
           i.payable_amount, i.deleted_at
      from invoices i
     cross join setting s
     cross join codes k
     where i.company_id = company
       and (i.id in (select u.invoice_id from submitted u)
            or i.code = any (k.possible)
               and full_code(invoice_prefix(i.type, s.setting), s.digits, i.code)
                   = documents_numbered.number)
    union all
    select null, n.id, null, n.type, n.status, n.issue_date, coalesce(i.currency_code, 'MYR'),
           n.payable_amount, n.deleted_at
      from adjustment_notes n
      left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
     cross join setting s
     cross join codes k
     where n.company_id = company
       and (n.id in (select u.adjustment_note_id from submitted u)
            or n.code = any (k.possible)
               and full_code(note_prefix(n.type, s.setting), s.digits, n.code)
                   = documents_numbered.number)
    union all
    select null, null, f.id, f.type, f.status, f.issue_date, 'MYR', f.payable_amount, f.deleted_at
      from consolidated_invoices f
     cross join setting s
     cross join codes k
     where f.company_id = company
       and (f.id in (select u.consolidated_invoice_id from submitted u)
            or f.code = any (k.possible)
               and full_code(consolidated_prefix(f.type, s.setting), s.digits, f.code)
                   = documents_numbered.number);
  end;
comment on function documents_numbered is
  'Documents of a company with this number: submitted under it, or with it as their full code '
  'now. There can be one for each year. Deleted ones are included.';
