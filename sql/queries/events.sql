-- Events of a company's documents. Every statement takes :company_id. The statements that make a
-- change write them in the same transaction.

-- name: event_page :one
-- Return `data`, a JSON array of at most :limit records after the event :after (0: from the first),
-- of :types (separated by commas) unless null; `has_more`; `next_after`, the id to continue after;
-- and `known`, null if the event :after does not exist. Ordered by transaction, once no earlier
-- transaction can add an event before them; see 0005_events_and_webhooks.sql.
with start as (
  select transaction_id, id
    from events
   where company_id = :company_id and id = :after::bigint
  union all
  select '0', 0 where :after = 0
), listed as (
  select row_number() over (order by r.transaction_id, r.id) as place,
         r.id,
         json_build_object(
           'id', r.id, 'type', r.type, 'data', r.data, 'created_at', instant(r.created_at))
           as event
    from events r
   where r.company_id = :company_id
     and r.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
     and (r.transaction_id, r.id) > ((select transaction_id from start), (select id from start))
     and (:types::text is null or r.type = any (string_to_array(:types, ',')))
   order by r.transaction_id, r.id
   limit :limit::bigint + 1
)
select (select true from start) as known,
       count(*) > :limit as has_more,
       coalesce((array_agg(id order by place desc) filter (where place <= :limit))[1], :after)
         as next_after,
       coalesce(json_agg(event order by place) filter (where place <= :limit), '[]')::text as data
  from listed;
