-- E-invoice requests. Every statement takes :company_id. Deleted requests have no row.

-- name: einvoice_request_insert :value
-- Store a pending request from a request body and return its id. :link_id and :secret_sha256 are
-- null without a link.
with stored as (
  insert into einvoice_requests (company_id, invoice_code, buyer, metadata, link_id, secret_sha256,
         document_id)
  select :company_id::bigint, body ->> 'invoiceCode', body - '{invoiceCode,metadata}'::text[],
         (body -> 'metadata')::json, :link_id::bigint, :secret_sha256::bytea,
         (select document_id
            from document_links
           where company_id = :company_id and id = :link_id)
    from (select :body::jsonb as body) request
  returning id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'einvoice_request.created',
         jsonb_build_object('einvoice_request_id', id)
    from stored
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'create', format('e-invoice request %s', id) from stored
)
select id from stored;

-- name: einvoice_request_pending_of_link :one
-- Return how many requests by a locked link are `pending`, and true in `is_of_buyer` if one of them
-- has the TIN or the registration number of the buyer in a request body. The general TINs and NA
-- identify no buyer.
select count(*) as pending,
       coalesce(
         bool_or(
           normalised_tin(r.buyer ->> 'tin') = own.tin
           or normalised_tin(r.buyer -> 'registration' ->> 'number') = own.number),
         false) as is_of_buyer
  from einvoice_requests r
 cross join (
       select nullif(regexp_replace(normalised_tin(body ->> 'tin'), '^EI0{9}[1-4]0$', ''), '')
                as tin,
              nullif(nullif(normalised_tin(body -> 'registration' ->> 'number'), ''), 'NA')
                as number
         from (select :body::jsonb as body) request) own
 where r.company_id = :company_id and r.link_id = :link_id
   and r.status = 'Pending' and r.deleted_at is null;

-- name: einvoice_request_outcome :one
-- Return what became of the latest request by a link, to the browser that has its secret: the
-- status, the reason of a rejection, and the status and the public page of the invoice that it
-- finalized. `is_replaced`: the invoice has another buyer now, to whom they belong, or was deleted,
-- perhaps before the approval. The row has no data of a buyer.
select r.status, r.rejection_reason, r.created_at,
       coalesce(i.is_replaced, r.status = 'Approve') as is_replaced,
       i.status as document_status,
       (select d.validation_link
          from submitted_documents d
         where d.company_id = :company_id and d.document_id = i.id and d.status = 'Valid')
         as validation_link
  from einvoice_requests r
  left join lateral (
       select s.id, s.status,
              r.approved_party is distinct from
                named_party(coalesce(d.buyer, d.supplier)::jsonb) as is_replaced
         from document_states s
         join documents d on d.company_id = s.company_id and d.id = s.id
        where s.company_id = :company_id
          and d.company_id = :company_id
          and s.id = r.invoice_id
          and s.deleted_at is null) i on true
 where r.company_id = :company_id and r.link_id = :link_id and r.secret_sha256 = :secret_sha256
   and r.deleted_at is null
 order by r.id desc
 limit 1;

-- name: einvoice_request_get :value
select to_json(r) from einvoice_request_records r where company_id = :company_id and id = :id;

-- name: einvoice_request_page :many
-- Return a page of records, newest first; see {kind}_page.
with page as materialized (
  select id, bytes + coalesce(octet_length(metadata::text), 0) as bytes
    from einvoice_requests
   where company_id = :company_id and deleted_at is null
   order by id desc
   limit :per_page::bigint offset :offset::bigint
)
select counted.total, page.id,
       case when (select sum(bytes) from page) <= :budget::bigint
            then (select to_json(r)
                    from einvoice_request_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from (select coalesce(sum(live), 0)::bigint as total
          from record_counts
         where company_id = :company_id and list = 'einvoice_request') counted
  left join page on true
 order by page.id desc;

-- name: einvoice_request_search :many
-- Return a page as einvoice_request_page does, with filters and a sort order.
with page as materialized (
  select total, id, place
    from document_search(:company_id, 'einvoice_request', :filters::jsonb, :sort, :per_page,
                         :offset)
         with ordinality as found (total, is_exact, id, place)
)
select page.total, page.id,
       case when (select sum((select e.bytes + coalesce(octet_length(e.metadata::text), 0)
                                from einvoice_requests e
                               where e.company_id = :company_id and e.id = p.id))
                    from page p) <= :budget::bigint
            then (select to_json(r)
                    from einvoice_request_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from page
 order by page.place;

-- name: einvoice_request_lock :one
-- Lock a request for a change, before the invoice that it names. `body` has the objects that an
-- update replaces, as in a request body. A deleted invoice is none.
select r.id, i.id as invoice_id, r.status,
       (r.buyer || jsonb_build_object('metadata', r.metadata))::text as body
  from einvoice_requests r
  left join documents i
         on i.company_id = :company_id and i.id = r.invoice_id and i.deleted_at is null
 where r.company_id = :company_id and r.id = :id and r.deleted_at is null
   for update of r;

-- name: einvoice_request_update :one
-- Write the members of a body to a locked request and return the result. The invoice that its
-- approval has made final stays its invoice until that is deleted. `document_id` is the invoice of
-- the link by which it was made, unless it names another one.
with changed as (
  update einvoice_requests r
     set invoice_code = coalesce(body ->> 'invoiceCode', r.invoice_code),
         buyer = r.buyer || (body - '{invoiceCode,status,reason,metadata}'::text[]),
         metadata = case when body ? 'metadata' then nullif(body -> 'metadata', 'null')::json
                         else r.metadata end,
         status = coalesce(body ->> 'status', r.status),
         rejection_reason = case coalesce(body ->> 'status', r.status)
                                 when 'Reject' then coalesce(body ->> 'reason', r.rejection_reason)
                            end,
         document_id = case when coalesce(body ->> 'invoiceCode', r.invoice_code) = r.invoice_code
                            then r.document_id end,
         invoice_id = (select i.id
                         from documents i
                        where i.company_id = :company_id
                          and i.id = r.invoice_id
                          and i.deleted_at is null),
         updated_at = clock_timestamp()
    from (select :body::jsonb as body) request
   where r.company_id = :company_id and r.id = :id
  returning r.id, r.invoice_code, r.document_id, r.invoice_id, r.status, r.buyer,
            body ->> 'status' as chosen
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint,
         case chosen when 'Approve' then 'approve'
                     when 'Reject' then 'reject'
                     when 'Pending' then 'reopen'
                     else 'change' end,
         format('e-invoice request %s', id)
    from changed
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'einvoice_request.updated',
         jsonb_build_object('einvoice_request_id', id, 'status', status)
    from changed
)
select id, invoice_code, document_id, invoice_id, buyer::text as buyer from changed;

-- name: einvoice_request_finalised :exec
-- Record the invoice that the approval of a locked request has just made final, and reject the
-- pending requests that name it, and no invoice that is still pending.
with approved as (
  update einvoice_requests
     set invoice_id = :invoice_id, approved_party = named_party(buyer)
   where company_id = :company_id and id = :id
), rejected as (
  update einvoice_requests r
     set status = 'Reject', rejection_reason = :reason, updated_at = clock_timestamp()
    from documents i
    join companies c on c.id = i.company_id
   where i.company_id = :company_id and c.id = :company_id and i.id = :invoice_id
     and r.company_id = :company_id
     and r.status = 'Pending'
     and r.deleted_at is null
     and r.id <> :id
     and case when r.document_id is not null then r.document_id = i.id
              else r.invoice_code in (i.code::text, document_number(i.type, i.code, c.setting))
                   and not exists (select from pending_invoices_named(:company_id, r.invoice_code))
         end
  returning r.id, r.status
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'reject', format('e-invoice request %s', id)
    from rejected
   order by id
)
insert into events (company_id, type, data)
select :company_id::bigint, 'einvoice_request.updated',
       jsonb_build_object('einvoice_request_id', id, 'status', status)
  from rejected
 order by id;

-- name: einvoice_request_delete :exec
-- Hide a locked request.
with hidden as (
  update einvoice_requests
     set deleted_at = clock_timestamp(), updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, fingerprint(to_jsonb(einvoice_requests)) as left_as
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', format('e-invoice request %s', id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, 'einvoice_request.deleted',
       jsonb_build_object('einvoice_request_id', id)
  from hidden;

-- name: pending_invoice_lock_named :many
-- Lock the invoices that wait for their other party: the one with the id :document_id, or without
-- an id those with this code or full code, of which there may be one for each of several years. An
-- invoice that was made final while the statement waited for its lock is left out.
select i.id
  from documents i
 where i.company_id = :company_id
   and i.id = any (case when :document_id::bigint is not null then array[:document_id]
                        else array(select pending_invoices_named(:company_id, :invoice_code)) end)
   and i.deleted_at is null
   and i.type like 'PENDING_FINALIZE_%'
 order by i.id
   for update;

-- name: invoice_with_requester :value
-- Return true if the approval of a request has made final the invoice with the id :document_id, or
-- without an id one with this code or full code, and no later one has the code, as in another year.
select true
  from einvoice_requests r
  join documents i on i.company_id = r.company_id and i.id = r.invoice_id
  join companies c on c.id = i.company_id
 where r.company_id = :company_id and i.company_id = :company_id and c.id = :company_id
   and i.deleted_at is null
   and case when :document_id::bigint is not null then i.id = :document_id
            else :invoice_code in (i.code::text, document_number(i.type, i.code, c.setting))
                 and not exists (
                     select
                       from documents later
                      where later.company_id = :company_id
                        and later.kind = 'invoice'
                        and later.code = i.code
                        and later.id > i.id
                        and later.deleted_at is null) end
 limit 1;
