-- Webhook endpoints, their secrets, and the log of deliveries. Every statement takes :company_id.

-- name: webhook_insert :value
-- Insert an endpoint with its first secret, sealed, and return its id. No row if the company has
-- :most endpoints. Run company_lock in a statement before, because a count sees what was committed
-- before its own statement began.
with stored as (
  insert into webhook_endpoints (company_id, url, description, types, enabled, include_record,
         ordered)
  select :company_id::bigint, :url, :description, :types::text[], :enabled, :include_record,
         :ordered
   where (select count(*) from webhook_endpoints where company_id = :company_id) < :most::bigint
  returning id, webhook_values(webhook_endpoints) as becomes
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256, changes)
  select :company_id::bigint, 'create', format('webhook %s', id), fingerprint(becomes),
         value_changes(null, becomes)
    from stored
), kept as (
  insert into webhook_secrets (company_id, endpoint_id, sealed_secret)
  select :company_id::bigint, id, :sealed_secret from stored
)
select id from stored;

-- name: webhook_get :value
-- Return a record without its counters, for its ETag: every delivery changes them.
select to_jsonb(r) - '{pending,delivered_last_minute}'::text[]
  from webhook_records r
 where company_id = :company_id and id = :id;

-- name: webhook_whole :one
-- Return `record`, and `tagged`, the result of webhook_get.
select to_json(r) as record, to_jsonb(r) - '{pending,delivered_last_minute}'::text[] as tagged
  from webhook_records r
 where company_id = :company_id and id = :id;

-- name: webhook_page :one
-- Return `total` and `data`, a JSON array of records, newest first.
select (select count(*) from webhook_endpoints where company_id = :company_id) as total,
       (select coalesce(json_agg(r order by r.id desc), '[]')
          from (select *
                  from webhook_records
                 where company_id = :company_id
                 order by id desc
                 limit :per_page::bigint offset :offset::bigint) r) as data;

-- name: webhook_lock :one
select url, description, types, enabled, include_record, ordered
  from webhook_endpoints
 where company_id = :company_id and id = :id
   for update;

-- name: webhook_update :exec
-- Write a locked endpoint. One that is enabled again starts with events from now on. Earlier events
-- of an endpoint that is disabled, or gets other types, are still delivered.
with former as (
  select webhook_values(webhook_endpoints) as was
    from webhook_endpoints
   where company_id = :company_id and id = :id
), earlier as (
  insert into webhook_deliveries (company_id, endpoint_id, event_id)
  select v.company_id, e.id, v.id
    from webhook_endpoints e
    join events v
      on v.company_id = e.company_id
     and (v.transaction_id, v.id) > (e.cursor_transaction, e.cursor_event)
     and (e.types = '{}' or v.type = any (e.types))
   where e.company_id = :company_id and e.id = :id and v.company_id = :company_id and e.enabled
     and (not :enabled or e.types <> :types::text[])
   order by v.transaction_id, v.id
      on conflict do nothing
), changed as (
  update webhook_endpoints
     set cursor_transaction = case when :enabled and not enabled
                                   then pg_snapshot_xmin(pg_current_snapshot())
                                   else cursor_transaction end,
         cursor_event = case when :enabled and not enabled then 0 else cursor_event end,
         url = :url,
         description = :description,
         types = :types::text[],
         enabled = :enabled,
         include_record = :include_record,
         ordered = :ordered,
         updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, webhook_values(webhook_endpoints) as becomes
)
insert into audit_log (company_id, action, subject, before_sha256, after_sha256, changes)
select :company_id::bigint, 'change', format('webhook %s', id), fingerprint(was),
       fingerprint(becomes), value_changes(was, becomes)
  from changed cross join former;

-- name: webhook_delete :value
-- Delete an endpoint with its secrets and its log. No row if it does not exist.
with deleted as (
  delete from webhook_endpoints
   where company_id = :company_id and id = :id
  returning id, webhook_values(webhook_endpoints) as was
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, changes)
  select :company_id::bigint, 'delete', format('webhook %s', id), fingerprint(was),
         value_changes(was, null)
    from deleted
)
select id from deleted;

-- name: webhook_secret_rotate :value
-- Add a new sealed secret to a locked endpoint. The former one still signs for :overlap, older ones
-- no longer. Returns until when.
with retired as (
  update webhook_secrets
     set valid_until = case when valid_until is null then clock_timestamp() + :overlap::interval
                            else clock_timestamp() end
   where company_id = :company_id
     and endpoint_id = :id
     and (valid_until is null or valid_until > clock_timestamp())
  returning valid_until
), added as (
  insert into webhook_secrets (company_id, endpoint_id, sealed_secret)
  values (:company_id, :id, :sealed_secret)
), audited as (
  insert into audit_log (company_id, action, subject)
  values (:company_id, 'replace', format('secret of webhook %s', :id::bigint))
)
select instant(max(valid_until)) from retired;

-- name: webhook_delivery_page :one
-- Return the deliveries of one endpoint as webhook_page does, those with :status unless null. No
-- row if the company has no such endpoint.
with found as (
  select id
    from webhook_deliveries
   where company_id = :company_id
     and endpoint_id = :endpoint_id
     and (:status::text is null or status = :status)
)
select (select count(*) from found) as total,
       (select coalesce(json_agg(r order by r.id desc), '[]')
          from (select id
                  from found
                 order by id desc
                 limit :per_page::bigint offset :offset::bigint) page
          join webhook_delivery_records r on r.company_id = :company_id and r.id = page.id) as data
  from webhook_endpoints
 where company_id = :company_id and id = :endpoint_id;

-- name: webhook_delivery_again :value
-- Make a delivery due at once and restart its schedule. No row if the endpoint has no delivery with
-- this id.
update webhook_deliveries
   set status = 'Pending', step = 0, next_attempt_at = clock_timestamp(), delivered_at = null
 where company_id = :company_id and endpoint_id = :endpoint_id and id = :id
returning id;

-- name: webhook_body :value
-- Return the body of a delivery with the record that its event is about, and the submitted document
-- that it names, as the API returns them now. Both are null if they have more than :most bytes
-- together; `record_omitted` says why there is no record.
with event as (
  select type, created_at, data, split_part(type, '.', 1) as subject
    from events
   where company_id = :company_id and id = :event_id
), found as (
  select e.type, e.created_at, e.data,
         case e.subject
         when 'invoice' then
           (select r.record::json
              from invoice_records r
             where r.company_id = :company_id and r.id = (e.data -> 'invoice_id')::bigint)
         when 'adjustment_note' then
           (select r.record::json
              from adjustment_note_records r
             where r.company_id = :company_id and r.id = (e.data -> 'adjustment_note_id')::bigint)
         when 'consolidated_invoice' then
           (select (left(r.record, -1) || ',"invoice_ids":' || to_json(d.invoice_ids)::text
                    || '}')::json
              from consolidated_invoice_records r
              join documents d on d.company_id = r.company_id and d.id = r.id
             where r.company_id = :company_id
               and r.id = (e.data -> 'consolidated_invoice_id')::bigint)
         when 'einvoice_request' then
           (select to_json(r)
              from einvoice_request_records r
             where r.company_id = :company_id and r.id = (e.data -> 'einvoice_request_id')::bigint)
         when 'company' then
           (select to_json(r) from company_records r where r.id = :company_id)
         end as record,
         (select to_json(r)
            from submitted_document_records r
           where r.company_id = :company_id
             and r.id = (e.data -> 'submitted_document_id')::bigint) as submitted_document
    from event e
), sized as (
  select *,
         coalesce(octet_length(record::text), 0)
           + coalesce(octet_length(submitted_document::text), 0) <= :most::bigint as fits
    from found
)
select json_build_object(
         'type', type,
         'timestamp', instant(created_at),
         'data', data,
         'record', case when fits then record end,
         'submitted_document', case when fits then submitted_document end,
         'record_omitted', case when not fits then 'too_large'
                                when record is null then 'deleted' end)::text
  from sized;

-- name: webhook_delivery_end :value
-- Record the outcome of an attempt and whether it was :slow, and release the claim. No row: the
-- delivery was claimed again. One that is to be delivered again, so that it has another :step,
-- stays due.
with mine as (
  update webhook_deliveries
     set lease_until = null,
         status = case when step = :step then :next else status end,
         next_attempt_at = case when step <> :step then next_attempt_at
                                when :next = 'Pending'
                                then clock_timestamp() + :delay::interval end,
         delivered_at = case when step <> :step then delivered_at
                             when :next = 'Delivered' then clock_timestamp() end,
         response_status = case when step = :step then :response_status else response_status end,
         error = case when step = :step then :error else error end
   where company_id = :company_id and endpoint_id = :endpoint_id and id = :id and fence = :fence
  returning id
), endpoint as (
  update webhook_endpoints
     set slow = :slow
   where company_id = :company_id
     and id = :endpoint_id
     and slow <> :slow
     and exists (select from mine)
)
select id from mine;
