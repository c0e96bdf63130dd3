-- E-invoice requests. Every statement takes :company_id. Deleted requests have no row.

-- name: einvoice_request_insert :value
-- Store a pending request from a request body and return its id.
with stored as (
  insert into einvoice_requests (company_id, invoice_code, buyer)
  select :company_id::bigint, body ->> 'invoiceCode', body - 'invoiceCode'
    from (select :body::jsonb as body) request
  returning id
), counted as (
  insert into list_counts (company_id, list, slot, live)
  values (:company_id::bigint, 'einvoice_requests', pg_backend_pid() % 8, 1)
      on conflict (company_id, list, slot) do update set live = list_counts.live + 1
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'einvoice_request.created',
         jsonb_build_object('einvoice_request_id', id)
    from stored
)
select id from stored;

-- name: einvoice_request_get :value
select to_json(r) from einvoice_request_records r where company_id = :company_id and id = :id;

-- name: einvoice_request_page :one
-- Return `total` and one page of records, newest first, in `data` or as `ids`; see invoice_page.
with counted as materialized (
  select coalesce(sum(live), 0)::bigint as total
    from list_counts
   where company_id = :company_id and list = 'einvoice_requests'
), page as (
  (select id
     from einvoice_requests
    where company_id = :company_id
      and deleted_at is null
      and (select 2 * :offset::bigint <= total from counted)
    order by id desc
    limit :per_page::bigint offset :offset::bigint)
  union all
  (select id
     from einvoice_requests
    where company_id = :company_id
      and deleted_at is null
      and (select 2 * :offset::bigint > total from counted)
    order by id
    limit (select greatest(0, least(:per_page::bigint, total - :offset::bigint)) from counted)
   offset (select greatest(0, total - :offset::bigint - :per_page::bigint) from counted))
), weighed as (
  select sum(stored.bytes) as bytes
    from page
   cross join lateral (select pg_column_size(buyer) as bytes
                         from einvoice_requests
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by r.id desc)::text as text
    from page
   cross join lateral (select *
                         from einvoice_request_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select total from counted) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null
            then (select array_agg(id order by id desc) from page)
       end as ids
  from written;

-- name: einvoice_request_search :one
-- Same result as einvoice_request_page, with filters and sort order; see invoice_search.
with found as not materialized (
  select id
    from einvoice_requests
   where company_id = :company_id and deleted_at is null
     and (:status::text is null or status = :status)
     and (:query::text is null
          or lower(invoice_code) = lower(:query)
          or position(lower(:query) in lower(buyer ->> 'name')) > 0)
), page as (
  select row_number() over () as place, id
    from (select id
            from found
           order by case when :sort = 'id' then id end,
                    case when :sort = '-id' then id end desc
           limit :per_page::bigint offset :offset::bigint) ordered
), weighed as (
  select sum(stored.bytes) as bytes
    from page
   cross join lateral (select pg_column_size(buyer) as bytes
                         from einvoice_requests
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by page.place)::text as text
    from page
   cross join lateral (select *
                         from einvoice_request_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select count(*) from found) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null
            then (select array_agg(id order by place) from page)
       end as ids
  from written;

-- name: einvoice_request_lock :one
-- Lock a request for a change, before the invoice that it names.
select id, invoice_code, invoice_id
  from einvoice_requests
 where company_id = :company_id and id = :id and deleted_at is null
   for update;

-- name: einvoice_request_update :one
-- Write the members of a body to a locked request and return the result. A request that names
-- another invoice has no final invoice any more.
with changed as (
  update einvoice_requests r
     set invoice_code = coalesce(body ->> 'invoiceCode', r.invoice_code),
         buyer = r.buyer || (body - 'invoiceCode' - 'status'),
         status = coalesce(body ->> 'status', r.status),
         invoice_id = case when coalesce(body ->> 'invoiceCode', r.invoice_code) = r.invoice_code
                           then r.invoice_id end,
         updated_at = clock_timestamp()
    from (select :body::jsonb as body) request
   where r.company_id = :company_id and r.id = :id
  returning r.id, r.invoice_code, r.invoice_id, r.status, r.buyer
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'einvoice_request.updated',
         jsonb_build_object('einvoice_request_id', id, 'status', status)
    from changed
)
select id, invoice_code, invoice_id, buyer::text as buyer from changed;

-- name: einvoice_request_finalised :exec
-- Record the invoice that the approval of a locked request made final.
update einvoice_requests set invoice_id = :invoice_id where company_id = :company_id and id = :id;

-- name: einvoice_request_delete :exec
-- Hide a locked request.
with hidden as (
  update einvoice_requests
     set deleted_at = clock_timestamp(), updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, fingerprint(to_jsonb(einvoice_requests)) as left_as
), counted as (
  insert into list_counts (company_id, list, slot, live)
  select :company_id::bigint, 'einvoice_requests', pg_backend_pid() % 8, -1 from hidden
      on conflict (company_id, list, slot) do update set live = list_counts.live - 1
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', format('e-invoice request %s', id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, 'einvoice_request.deleted',
       jsonb_build_object('einvoice_request_id', id)
  from hidden;

-- name: pending_invoice_lock_named :many
-- Lock the invoices that wait for their other party and have this code or full code. There may be
-- one for each of several years. An invoice that was made final while the statement waited for its
-- lock is left out. The digits at the end of the text select the few possible codes by index.
select i.id
  from invoices i
  join companies c on c.id = i.company_id
 where i.company_id = :company_id and c.id = :company_id and i.deleted_at is null
   and i.type like 'PENDING_FINALIZE_%'
   and i.code = any (array(select case when digits ~ '^[0-9]+$' then digits::bigint end
                             from (select right(:invoice_code, n) as digits
                                     from generate_series(1, 12) n) tail))
   and :invoice_code in (i.code::text,
                         full_code(
                           invoice_prefix(i.type, c.setting),
                           (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                           i.code))
 order by i.id
   for update of i;
