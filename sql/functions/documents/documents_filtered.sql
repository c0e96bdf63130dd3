-- A plain SQL function, which PostgreSQL inlines: the plan of the caller has only the conditions of
-- the filters that are present, and can use their indexes. The state of a document is read only if
-- a filter or the caller needs it.
create or replace function documents_filtered(
    for_company bigint, of_kind text, filters jsonb, described bigint[])
  returns table (
    id bigint,
    issue_date timestamptz,
    code bigint,
    updated_at timestamptz,
    amount numeric,
    named_by bigint,
    buyer_text text)
  stable language sql as $$
  select d.id, d.issue_date, d.code, s.updated_at, d.payable_amount,
         case when of_kind = 'adjustment_note' then d.invoice_id else d.id end,
         case when of_kind = 'adjustment_note'
              then (select t.buyer_text
                      from documents t
                     where t.company_id = for_company and t.id = d.invoice_id)
              else d.buyer_text end
    from documents d
    left join document_states s on s.company_id = d.company_id and s.id = d.id
   where d.company_id = for_company and d.kind = of_kind and d.deleted_at is null
     and (not filters ?| array['status', 'updated_from', 'updated_to']
          or s.company_id = for_company and s.kind = of_kind and s.deleted_at is null)
     and (not filters ? 'status'
          or strpos(filters ->> 'status', ',') = 0
             and s.status = filters ->> 'status'
          or strpos(filters ->> 'status', ',') > 0
             and s.status = any (string_to_array(filters ->> 'status', ',')))
     and (not filters ? 'type' or d.type = filters ->> 'type')
     and (not filters ? 'issued_from' or d.issue_date >= (filters ->> 'issued_from')::timestamptz)
     and (not filters ? 'issued_to' or d.issue_date <= (filters ->> 'issued_to')::timestamptz)
     and (not filters ? 'updated_from' or s.updated_at >= (filters ->> 'updated_from')::timestamptz)
     -- A record shows its milliseconds only.
     and (not filters ? 'updated_to'
          or s.updated_at < date_trunc('milliseconds', (filters ->> 'updated_to')::timestamptz)
                            + interval '1 millisecond')
     and (not filters ? 'is_ready' or d.is_ready = (filters ->> 'is_ready')::boolean)
     and (not filters ? 'amount_from' or d.payable_amount >= (filters ->> 'amount_from')::numeric)
     and (not filters ? 'amount_to' or d.payable_amount <= (filters ->> 'amount_to')::numeric)
     -- A search has found the beginning of the TIN. PostgreSQL estimates a case as half of the
     -- rows, but an equality as so few that it would read all matches to sort them.
     and (not filters ? 'buyer_tin'
          or case when filters ->> 'buyer_tin' = normalised_tin(
                         case when of_kind = 'adjustment_note'
                              then (select t.buyer ->> 'tin'
                                      from documents t
                                     where t.company_id = for_company and t.id = d.invoice_id)
                              else d.buyer ->> 'tin' end)
                  then true else false end)
     and (not filters ? 'reference' or d.reference = filters ->> 'reference')
     and (described is null or d.id = any (described))
$$;
comment on function documents_filtered is
  'The documents of a kind that match the filters of a list other than the search text. '
  '`described` are the ids of those with the metadata, null without such a filter. The buyer of '
  'a note is that of the invoice `named_by`, which it adjusts.';
