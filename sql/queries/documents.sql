-- Documents: invoices, adjustment notes and consolidated invoices. Every statement takes
-- :company_id, so that rows of other companies are not found. Deleted documents have no row.
--
-- A statement with {kind} in its name is stored once for each kind of document.

-- name: document_insert :one
-- Store a draft, and return its id and the tax registrations of the company. Sets its company and
-- its actor, so that it can be a transaction of its own: `stored.id is not null` and `offset 0`
-- keep PostgreSQL from reading the company before it is set. Can violate the unique indexes of
-- codes and references.
with tenant as materialized (
  select set_config('app.company_id', :company_id::bigint::text, true),
         set_config('app.actor', :actor, true),
         set_config('app.request_id', :request_id, true),
         set_config('app.client_address', :client_address, true)
), stored as (
  insert into documents (company_id, kind, type, code, code_year, invoice_id,
         consolidated_invoice_id, month, invoice_ids, is_ready, issue_date, buyer, buyer_text,
         supplier, line_items, currency_code, exchange_rate, reference, metadata, optional_members,
         net_amount, excluding_tax, including_tax, payable_amount, prepaid_amount, taxes, bytes)
  select :company_id::bigint, :kind::text, :type::text, :code::bigint, :code_year::smallint,
         :invoice_id::bigint, :consolidated_invoice_id::bigint, :month::date,
         :invoice_ids::bigint[], :is_ready::boolean, :issue_date::timestamptz, :buyer::json,
         searched_party(:buyer::json), :supplier::json, :line_items::json, :currency_code::text,
         :exchange_rate::numeric, :reference::text, :metadata::json, :optional_members::text,
         :net_amount::numeric, :excluding_tax::numeric, :including_tax::numeric,
         :payable_amount::numeric, :prepaid_amount::numeric, :taxes::jsonb, :bytes::int
    from tenant
  returning id, kind, invoice_id, consolidated_invoice_id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, kind || '.created',
         subject_ids(kind, id, invoice_id, consolidated_invoice_id)
    from stored
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'create', document_name(kind, id) from stored
)
select stored.id, own.*
  from stored
 cross join lateral (
       select sst_registration_number, tourism_tax_registration_number
         from companies
        where id = :company_id and stored.id is not null
       offset 0) own;

-- name: {kind}_get :value
-- Return the record as JSON text, which the service passes through, as a list shows it. A list
-- leaves out the invoice_ids of a consolidated invoice.
select record from {kind}_records where company_id = :company_id and id = :id;

-- name: {kind}_page :many
-- Return a page of records, newest first: rows with the `total` of the list, `id` and `record`, a
-- JSON object. The records are null if their documents exceed :budget bytes together. An empty
-- page is a row with the total alone.
with page as materialized (
  select id, bytes
    from documents
   where company_id = :company_id and kind = '{kind}' and deleted_at is null
   order by id desc
   limit :per_page::bigint offset :offset::bigint
)
select counted.total, page.id,
       case when (select sum(bytes) from page) <= :budget::bigint
            then (select r.record
                    from {kind}_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from (select coalesce(sum(live), 0)::bigint as total
          from record_counts
         where company_id = :company_id and list = '{kind}') counted
  left join page on true
 order by page.id desc;

-- name: {kind}_search :many
-- Return a page as {kind}_page does, with filters and a sort order. A filter that is absent does
-- not apply. With the filter count_to, the total is counted up to about this number, and is_exact
-- is false if there are more.
with page as materialized (
  select total, is_exact, id, place
    from document_search(:company_id, '{kind}', :filters::jsonb, :sort, :per_page, :offset)
         with ordinality as found (total, is_exact, id, place)
)
select page.total, page.is_exact, page.id,
       case when (select sum((select d.bytes
                                from documents d
                               where d.company_id = :company_id and d.id = p.id))
                    from page p) <= :budget::bigint
            then (select r.record
                    from {kind}_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from page
 order by page.place;

-- name: documents_lock :many
-- Lock documents by id for a change, and before each the document that it adjusts, so that changes
-- of notes to one invoice run one after another. Read other columns in a later statement, which
-- sees what the previous holder of the lock committed.
select id
  from documents
 where company_id = :company_id
   and id = any (array(
         select unnest(array[id, case when kind = 'adjustment_note'
                                      then coalesce(invoice_id, consolidated_invoice_id) end])
           from documents
          where company_id = :company_id and id = any (:ids::bigint[]) and deleted_at is null))
 order by id
   for update;

-- name: document_load :one
-- Return what the rules and the printed page need of a document: `body` in the form of a request
-- body, in which the optional members have the names of a record, and the full number. A note has
-- the parties and the currency of the document that it adjusts, with `selfBilled` and `originals`
-- of that, which have the TIN that submitted them. The other party of a consolidated invoice is the
-- general public, and its billing period is the month of its sales.
-- `adjustable` is the amount by which the target of a note can still be reduced, less other notes
-- that would reduce it: credit and refund notes being submitted, and debit notes being cancelled.
-- It is null for other documents.
select d.id, s.status, d.type, s.attempts, s.is_changed, d.issue_date, d.is_ready, d.month,
       d.invoice_id, d.consolidated_invoice_id, d.invoice_ids, t.id as target_id,
       d.payable_amount + d.prepaid_amount as total_amount,
       clock_timestamp() as now,
       document_number(d.type, d.code, c.setting) as number,
       c.sst_registration_number, c.tourism_tax_registration_number,
       t.payable_amount + t.prepaid_amount + ts.adjusted_by
         - (select coalesce(sum(o.payable_amount + o.prepaid_amount), 0)
              from documents o
              join document_states os on os.company_id = o.company_id and os.id = o.id
             where o.company_id = :company_id
               and os.company_id = :company_id
               and o.id <> d.id
               and (o.invoice_id = t.id
                    or o.consolidated_invoice_id = t.id and o.kind = 'adjustment_note')
               and case o.type
                   when 'DEBIT_NOTE'
                   then os.status = 'Valid'
                        and exists (select
                                      from submitted_documents sent
                                     where sent.company_id = :company_id
                                       and sent.document_id = o.id
                                       and sent.cancellation_requested_at is not null)
                   else os.status in ('Submitting', 'Submitted')
                   end) as adjustable,
       left(json_build_object(
         'type', d.type,
         case when t.id is null then 'code' else 'adjustmentNoteCode' end, d.code,
         case when t.id is null then 'issueDateTime' else 'adjustmentNoteIssueDate' end,
         instant(d.issue_date),
         'isReady', case when d.kind = 'invoice' then d.is_ready end,
         'buyer', case when party.type = 'CONSOLIDATED_INVOICE'
                       then json_build_object('type', 'GENERAL_PUBLIC')
                       else party.buyer end,
         'supplier', case when party.type = 'CONSOLIDATED_SELF_BILLED_INVOICE'
                          then json_build_object('type', 'GENERAL_PUBLIC')
                          else party.supplier end,
         'lineItems', d.line_items,
         'currencyCode', party.currency_code, 'exchangeRate', party.exchange_rate,
         'billingPeriod', case when d.month is not null
                               then json_build_object(
                                 'start', d.month,
                                 'end', (d.month + interval '1 month' - interval '1 day')::date,
                                 'frequency', 'Monthly') end,
         'reference', d.reference, 'metadata', d.metadata,
         'selfBilled', t.type like '%SELF_BILLED%',
         'originals', (select json_agg(json_build_object(
                                'uuid', o.uuid, 'number', o.number, 'tin', sent.tin))
                         from submitted_documents o
                         join submissions sent
                           on sent.company_id = o.company_id and sent.id = o.submission_id
                        where o.company_id = :company_id and sent.company_id = :company_id
                          and o.status = 'Valid' and o.document_id = t.id))::text, -1)
         || ',' || d.optional_members || '}' as body
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
  join companies c on c.id = d.company_id
  left join documents t
         on d.kind = 'adjustment_note' and t.company_id = d.company_id
        and t.id = coalesce(d.invoice_id, d.consolidated_invoice_id)
  left join document_states ts on ts.company_id = t.company_id and ts.id = t.id
 cross join lateral (
       select coalesce(t.type, d.type) as type,
              case when t.id is null then d.buyer else t.buyer end as buyer,
              case when t.id is null then d.supplier else t.supplier end as supplier,
              coalesce(t.currency_code, d.currency_code) as currency_code,
              case when t.id is null then d.exchange_rate else t.exchange_rate end
                as exchange_rate) party
 where d.company_id = :company_id and s.company_id = :company_id and c.id = :company_id
   and d.id = :id and d.kind = :kind and d.deleted_at is null;

-- name: document_share :one
-- Lock an invoice or a consolidated invoice FOR SHARE, so that it is not cancelled while a note to
-- it is inserted.
select d.id, d.type, d.payable_amount + d.prepaid_amount + s.adjusted_by as final_adjusted_amount
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 where d.company_id = :company_id and s.company_id = :company_id
   and d.id = :id and d.kind = :kind and d.deleted_at is null
   for share;

-- name: document_update :exec
-- Write the whole draft to a locked row, note whether it differs, and revoke the links by which its
-- former other party sees the document. Can violate the unique indexes of codes and references.
with former as (
  select coalesce(d.buyer, d.supplier)::jsonb as party, to_jsonb(d) - 'bytes' as document
    from documents d
   where d.company_id = :company_id and d.id = :id
), changed as (
  update documents d
     set type = :type::text,
         code = :code::bigint,
         code_year = :code_year::smallint,
         is_ready = :is_ready::boolean,
         issue_date = :issue_date::timestamptz,
         buyer = :buyer::json,
         buyer_text = searched_party(:buyer::json),
         supplier = :supplier::json,
         line_items = :line_items::json,
         currency_code = :currency_code::text,
         exchange_rate = :exchange_rate::numeric,
         reference = :reference::text,
         metadata = :metadata::json,
         optional_members = :optional_members::text,
         net_amount = :net_amount::numeric,
         excluding_tax = :excluding_tax::numeric,
         including_tax = :including_tax::numeric,
         payable_amount = :payable_amount::numeric,
         prepaid_amount = :prepaid_amount::numeric,
         taxes = :taxes::jsonb,
         bytes = :bytes::int
   where d.company_id = :company_id and d.id = :id
  returning d.id, d.kind, d.invoice_id, d.consolidated_invoice_id,
            to_jsonb(d) - 'bytes' as document
), unshared as (
  update document_links l
     set revoked_at = clock_timestamp()
    from former
   where l.company_id = :company_id
     and l.document_id = :id
     and l.purpose = 'view'
     and l.revoked_at is null
     and l.expires_at > clock_timestamp()
     and former.party is not null
     and named_party(former.party)
         is distinct from named_party(coalesce(:buyer::json, :supplier::json)::jsonb)
  returning l.id
), stated as (
  update document_states s
     set is_changed = s.is_changed or changed.document <> former.document,
         updated_at = clock_timestamp()
    from changed, former
   where s.company_id = :company_id and s.id = changed.id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'change', document_name(kind, id) from changed
   union all
  select :company_id, 'unshare', document_name(changed.kind, changed.id) from changed, unshared
)
insert into events (company_id, type, data)
select :company_id::bigint, kind || '.updated',
       subject_ids(kind, id, invoice_id, consolidated_invoice_id)
  from changed;

-- name: document_delete :exec
-- Hide a locked document, free its code, and release the locked invoices of a consolidated invoice.
with hidden as (
  update documents
     set deleted_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, kind, invoice_id, consolidated_invoice_id,
            fingerprint(to_jsonb(documents)) as left_as
), freed as (
  update documents i
     set consolidated_invoice_id = null
    from hidden
   where i.company_id = :company_id and i.consolidated_invoice_id = hidden.id
     and i.kind = 'invoice'
  returning i.id
), stated as (
  update document_states s
     set updated_at = clock_timestamp()
    from freed
   where s.company_id = :company_id and s.id = freed.id
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', document_name(kind, id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, kind || '.deleted',
       subject_ids(kind, id, invoice_id, consolidated_invoice_id)
  from hidden;

-- name: {kind}_export :one
-- Return the optional members and the export without its first bracket, as texts, and the full
-- code, which names its file.
select optional_members, right(export::text, -1) as export,
       export ->> 'invoiceCodeWithPrefixAndDigits' as full_code
  from {kind}_exports
 where company_id = :company_id and id = :id;

-- name: {kind}_export_batch :many
-- Return the id, the optional members and the export, as {kind}_export does, of the next documents
-- below :before, newest first: at most :most, and as many as have documents of :budget bytes, at
-- least one.
with next as (
  select id, bytes
    from documents
   where company_id = :company_id and kind = '{kind}' and deleted_at is null and id < :before
   order by id desc
   limit :most::bigint
), fitting as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before from next
)
select e.id, e.optional_members, right(e.export::text, -1) as export
  from fitting f
  join {kind}_exports e on e.company_id = :company_id and e.id = f.id
 where f.bytes_before <= :budget::bigint
 order by e.id desc;

-- name: documents_listed :many
-- Return what lists of the dashboard show of the documents :ids, in this order, without deleted
-- ones. The number is that of the latest document that the portal has, or that with which the next
-- one would be sent. The kind, the id and the members after it are those of the document that a
-- note adjusts, and of other documents their own. The party is the other one.
select d.id, d.code, d.type, s.status, d.issue_date, d.excluding_tax,
       d.including_tax - d.excluding_tax as tax, d.including_tax, d.payable_amount as payable,
       d.taxes::text as taxes,
       coalesce(latest.number, document_number(d.type, d.code, c.setting)) as number,
       latest.uuid, latest.validation_link, source.kind, source.id as document_id,
       source.code as source_code, source.currency_code as currency, source.exchange_rate,
       case source.currency_code when 'MYR' then 1 else source.exchange_rate end as home_rate,
       source.type as source_type, to_char(source.month, 'YYYY-MM') as month,
       other.party ->> 'name' as party_name, other.party ->> 'type' as party_type,
       json_build_object(
         'type', other.party -> 'type',
         'tin', other.party -> 'tin',
         'registration', other.party -> 'registration')::text as party
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
  join companies c on c.id = d.company_id
  join documents source
    on source.company_id = d.company_id
   and source.id = case when d.kind = 'adjustment_note'
                        then coalesce(d.invoice_id, d.consolidated_invoice_id)
                        else d.id end
 cross join lateral (
       select case when source.type like '%SELF_BILLED%' then source.supplier
                   else source.buyer end as party) other
  left join lateral (
       select number, uuid, validation_link
         from submitted_documents
        where company_id = :company_id and document_id = d.id and uuid is not null
        order by id desc
        limit 1) latest on true
 where d.company_id = :company_id and source.company_id = :company_id and c.id = :company_id
   and s.company_id = :company_id and d.id = any (:ids::bigint[]) and d.deleted_at is null
 order by array_position(:ids::bigint[], d.id);

-- name: notes_of_document :many
-- Return the notes of an invoice or a consolidated invoice, the latest first, at most :most or all.
select d.id, d.type, d.code, s.status, d.issue_date, d.payable_amount
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 where d.company_id = :company_id and s.company_id = :company_id
   and (d.invoice_id = :document_id or d.consolidated_invoice_id = :document_id)
   and d.kind = 'adjustment_note' and d.deleted_at is null
 order by d.id desc
 limit :most::bigint;

-- name: {kind}_code_used :value
-- Return true if another invoice of the year, or another note of the type, has the code.
select true
  from documents
 where company_id = :company_id and kind = '{kind}' and code = :code
   and (code_year = :code_year or type = :type)
   and deleted_at is null and id is distinct from :except_id
 limit 1;
