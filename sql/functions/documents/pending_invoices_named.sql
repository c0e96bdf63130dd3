-- The digits at the end of the text select the few possible codes by index.
create or replace function pending_invoices_named(for_company bigint, words text)
  returns setof bigint
  stable language sql
  begin atomic
    select i.id
      from documents i
      join companies c on c.id = i.company_id
     where i.company_id = for_company
       and c.id = for_company
       and i.kind = 'invoice'
       and i.deleted_at is null
       and i.type like 'PENDING_FINALIZE_%'
       and i.code = any (array(select case when digits ~ '^[0-9]+$' then digits::bigint end
                                 from (select right(words, n) as digits
                                         from generate_series(1, 12) n) tail))
       and words in (i.code::text, document_number(i.type, i.code, c.setting));
  end;
comment on function pending_invoices_named is
  'Ids of the invoices of a company that wait for their other party and have this code or full '
  'code.';
