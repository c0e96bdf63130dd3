create or replace function documents_numbered(company bigint, number text)
  returns table (
    id bigint, kind text, type text, status text, issue_date timestamptz, currency_code text,
    payable_amount numeric, deleted_at timestamptz)
  stable parallel safe language sql
  begin atomic
    select d.id, d.kind, d.type, s.status, d.issue_date,
           coalesce(t.currency_code, d.currency_code), d.payable_amount, d.deleted_at
      from documents d
      join document_states s on s.company_id = d.company_id and s.id = d.id
      join companies c on c.id = d.company_id
      left join documents t
             on d.kind = 'adjustment_note' and t.company_id = d.company_id
            and t.id = coalesce(d.invoice_id, d.consolidated_invoice_id)
     where d.company_id = company
       and (d.id in (select n.document_id
                       from submitted_documents n
                      where n.company_id = company and n.number = documents_numbered.number)
            or d.code = any (array(select t.digits::bigint
                                     from (select right(number, n) as digits
                                             from generate_series(1, 12) n) t
                                    where t.digits ~ '^[0-9]+$'))
               and document_number(d.type, d.code, c.setting) = documents_numbered.number);
  end;
comment on function documents_numbered is
  'Documents of a company with this number: submitted under it, or with it as their full code '
  'now. There can be one for each year. Deleted ones are included.';
