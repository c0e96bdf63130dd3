create or replace function documents_filter(of_kind text, filters jsonb, sorted text) returns text
  immutable language plpgsql as $$
declare
  needs_states boolean := filters ?| array['status', 'updated_from', 'updated_to'];
  has_one_status boolean := strpos(filters ->> 'status', ',') = 0;
begin
  return
    case when of_kind = 'einvoice_request'
         then 'from einvoice_requests s'
              ' cross join lateral (select s.id, s.invoice_code, s.buyer) d'
              ' where s.company_id = $1 and s.deleted_at is null'
         when sorted in ('id', 'updated_at')
              and filters - '{status,updated_from,updated_to,count_to,after}'::text[] = '{}'
         then 'from document_states s cross join lateral (select s.id) d'
              ' where s.company_id = $1 and s.kind = $2 and s.deleted_at is null'
         else format(
           'from documents d %s %s'
           ' where d.company_id = $1 and d.kind = $2 and d.deleted_at is null',
           case when needs_states
                then 'join document_states s on s.company_id = $1 and s.id = d.id'
                     ' and s.kind = $2 and s.deleted_at is null' end,
           case when of_kind = 'adjustment_note'
                then 'left join documents n on n.company_id = $1 and n.id = d.invoice_id'
                else 'cross join lateral (select d.buyer, d.buyer_text) n' end) end
    || coalesce(
      (select string_agg(' and ' || format(each.condition, format('($3 ->> %L)', each.name)), '')
         from (values
           ('status', case when has_one_status then 's.status = %s'
                           else 's.status = any (string_to_array(%s, '',''))' end),
           ('type', 'd.type = %s'),
           ('issued_from', 'd.issue_date >= %s::timestamptz'),
           -- A record shows its milliseconds only.
           ('issued_to', 'd.issue_date < date_trunc(''milliseconds'', %s::timestamptz)'
                         ' + interval ''1 millisecond'''),
           ('updated_from', 's.updated_at >= %s::timestamptz'),
           ('updated_to', 's.updated_at < date_trunc(''milliseconds'', %s::timestamptz)'
                          ' + interval ''1 millisecond'''),
           ('is_ready', 'd.is_ready = %s::boolean'),
           ('amount_from', 'd.payable_amount >= %s::numeric'),
           ('amount_to', 'd.payable_amount <= %s::numeric'),
           -- A search has found the beginning of the TIN. PostgreSQL estimates a case as half of
           -- the rows, but an equality as so few that it would read all matches to sort them.
           ('buyer_tin', 'case when %s = normalised_tin(n.buyer ->> ''tin'')'
                         ' then true else false end'),
           ('reference', 'd.reference = %s'),
           ('metadata', 'd.id = any ($4)'),
           ('query', case when of_kind = 'einvoice_request'
                          then '(lower(d.invoice_code) = lower(%1$s)'
                               ' or search_text(%1$s) <> '''''
                               ' and position('' '' || search_text(%1$s)'
                               ' in '' '' || searched_party(d.buyer::json)) > 0)' end),
           -- A long array must not be a condition of the inner index scan of their join.
           ('matching', case when needs_states then 's.id = any ($5)'
                             else 'd.id = any ($5)' end)) each (name, condition)
        where filters ? each.name), '');
end $$;
comment on function documents_filter is
  'The text of a query from its `from` on: the documents d of a kind that match the filters of a '
  'list other than the search text, or the e-invoice requests that match all filters. Its '
  'parameters: $1 the company, $2 the kind, $3 the filters, $4 the ids of the records with the '
  'metadata, $5 those of the documents that a search has found, if the filters have the name '
  '`matching`. The buyer is that of n: the document, or the invoice that a note adjusts. The '
  'states s are there if a filter needs them; where filters and order need nothing else, d has '
  'only the id. `sorted` is the member that sorts, or null. A text with the conditions of the '
  'present filters alone is planned in half the time of one with all.';
