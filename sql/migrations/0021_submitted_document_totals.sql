-- compatible: 0020
-- Totals of submitted documents are maintained as those of other lists. They and the correction
-- below read rows of all companies, which the owner of the tables otherwise does not see.

alter table invoices no force row level security;
alter table adjustment_notes no force row level security;
alter table consolidated_invoices no force row level security;
alter table submitted_documents no force row level security;
alter table record_counts no force row level security;

alter table submitted_documents add column deleted_at timestamptz;
comment on column submitted_documents.deleted_at is
  'When its invoice or note was deleted. Null: it is not. Written by triggers.';
comment on column record_counts.list is
  'Table that is counted: invoices, adjustment_notes, consolidated_invoices, einvoice_requests or '
  'submitted_documents.';

update submitted_documents d
   set deleted_at = i.deleted_at
  from invoices i
 where i.company_id = d.company_id and i.id = d.invoice_id and i.deleted_at is not null;
update submitted_documents d
   set deleted_at = n.deleted_at
  from adjustment_notes n
 where n.company_id = d.company_id and n.id = d.adjustment_note_id and n.deleted_at is not null;
update submitted_documents d
   set deleted_at = k.deleted_at
  from consolidated_invoices k
 where k.company_id = d.company_id
   and k.id = d.consolidated_invoice_id
   and k.deleted_at is not null;

create function mark_deleted_documents() returns trigger language plpgsql as $$
begin
  if tg_table_name = 'invoices' then
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and invoice_id = new.id;
  elsif tg_table_name = 'adjustment_notes' then
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and adjustment_note_id = new.id;
  else
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and consolidated_invoice_id = new.id;
  end if;
  return null;
end $$;
comment on function mark_deleted_documents is
  'Note in the submitted documents of a record that it was deleted.';
create trigger submitted_deleted after update on invoices for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
create trigger submitted_deleted after update on adjustment_notes for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
create trigger submitted_deleted after update on consolidated_invoices for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
call keep_counts('submitted_documents', '''''');

-- An earlier version counted the net amount of a line once for each of its taxes of one type and
-- rate. The amounts are exact decimals here as in the service, and rounded half up, since none is
-- negative. Documents with right amounts are not written, and those without two taxes on a line not
-- computed.

create function pg_temp.adjustment(given json, subtotal numeric) returns numeric
  immutable language sql
  return coalesce(
    round((given ->> 'amount')::numeric, 2),
    round(subtotal * (given ->> 'rate')::numeric * 0.01, 2),
    0);

create function pg_temp.taxable_by_rate(line_items json)
  returns table (type text, rate numeric, taxable numeric)
  immutable language sql as $$
    select tax.type,
           tax.rate,
           sum(gross.subtotal
                 - pg_temp.adjustment(item -> 'discount', gross.subtotal)
                 + pg_temp.adjustment(item -> 'charge', gross.subtotal))
      from json_array_elements(line_items) item
     cross join lateral (
       select round(
                (item #>> '{unit,price}')::numeric * (item #>> '{unit,count}')::numeric,
                2) as subtotal) gross
     cross join lateral (
       select distinct
              detail ->> 'taxType' as type,
              case when detail ->> 'taxType' = 'E' then 0
                   when detail #> '{taxRate,perUnitAmount}' is not null then null
                   else coalesce((detail #>> '{taxRate,percentage}')::numeric, 0)
              end as rate
         from json_array_elements(coalesce(item -> 'taxDetails', '[]')) detail) tax
     group by tax.type, tax.rate
  $$;

create function pg_temp.correct_taxes(taxes jsonb, line_items json) returns jsonb
  immutable language sql as $$
    select coalesce(
             jsonb_agg(
               jsonb_set(tax, '{taxable}', coalesce(to_jsonb(computed.taxable), tax -> 'taxable'))
               order by place),
             taxes)
      from jsonb_array_elements(taxes) with ordinality as stored (tax, place)
      left join pg_temp.taxable_by_rate(line_items) computed
             on computed.type = tax ->> 'type'
            and computed.rate is not distinct from (tax ->> 'rate')::numeric
  $$;

create procedure pg_temp.correct_documents(documents regclass) language plpgsql as $$
begin
  execute format(
    'update %1$s'
    ' set taxes = pg_temp.correct_taxes(taxes, line_items)'
    ' where case when exists (select'
    '                           from json_array_elements(line_items) item'
    '                          where json_array_length(item -> ''taxDetails'') > 1)'
    '            then taxes <> pg_temp.correct_taxes(taxes, line_items) end',
    documents);
end $$;
call pg_temp.correct_documents('invoices');
call pg_temp.correct_documents('adjustment_notes');
call pg_temp.correct_documents('consolidated_invoices');

alter table invoices force row level security;
alter table adjustment_notes force row level security;
alter table consolidated_invoices force row level security;
alter table submitted_documents force row level security;
alter table record_counts force row level security;
