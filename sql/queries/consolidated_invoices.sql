-- Consolidated invoices. Every statement takes :company_id. Deleted ones have no row.

-- name: consolidation_of_month :many
-- Return the candidates that were issued in a time span, ordered by code. Those of :omitted_types
-- that were submitted individually have no row.
select id, code, number, type, status, issue_date, currency_code, total_amount,
       consolidated_invoice_id, is_named, was_accepted
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and not (type = any (:omitted_types::text[]) and was_submitted)
 order by code, id;

-- name: consolidation_submitted_count :value
-- Return how many candidates of a time span and of :types were submitted individually.
select count(*)
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and type = any (:types::text[]) and was_submitted;

-- name: consolidation_classes :many
-- Return the candidates of consolidation_of_month, grouped by all facts that the rules read: each
-- row has the facts of its invoices, their number, and the sums of their amounts. Amounts above
-- :amount are apart.
select type, status, currency_code, consolidated_invoice_id, is_named, was_accepted,
       max(issue_date) as issue_date, max(number) as number, max(total_amount) as total_amount,
       count(*) as n, sum(excluding_tax) as excluding_tax, sum(total_amount) as payable
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and not (type = any (:omitted_types::text[]) and was_submitted)
 group by type, status, currency_code, consolidated_invoice_id, is_named, was_accepted,
       (issue_date at time zone :zone)::date, total_amount > :amount;

-- name: consolidation_of_ids :many
-- Return the candidates with these ids, ordered by code. Missing invoices have no row.
select id, code, number, type, status, issue_date, currency_code, total_amount,
       consolidated_invoice_id, is_named, was_accepted
  from consolidation_candidates
 where company_id = :company_id and id = any (:ids::bigint[])
 order by code, id;

-- name: consolidation_lines :many
-- Return the parts of invoices that the lines are computed from, as JSON text.
select id, line_items::text as line_items, optional_members,
       prepaid_amount
  from documents
 where company_id = :company_id and id = any (:ids::bigint[]);

-- name: consolidated_invoice_assign :exec
-- Assign locked invoices to a new consolidated invoice.
with assigned as (
  update documents
     set consolidated_invoice_id = :id
   where company_id = :company_id and kind = 'invoice' and id = any (:ids::bigint[])
  returning id
)
update document_states s
   set updated_at = clock_timestamp()
  from assigned
 where s.company_id = :company_id and s.id = assigned.id;

-- name: consolidated_invoice_whole :value
-- Return the record as JSON text with the invoices that it was made of.
select left(r.record, -1) || ',"invoice_ids":' || to_json(d.invoice_ids)::text || '}'
  from consolidated_invoice_records r
  join documents d on d.company_id = r.company_id and d.id = r.id
 where r.company_id = :company_id and r.id = :id;
