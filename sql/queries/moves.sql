-- Cells, and the move of a company from one to another.

-- name: cell_get :value
-- Return the name of the cell that this database is. No row without cells.
select name from cells;

-- name: migration_cell_note :exec
-- Record that this database is a cell.
insert into cells (name, id_base) values (:name, :id_base) on conflict do nothing;

-- name: move_session :one
-- Set the company of this session, in which rows of held companies can be written. The owner of the
-- database runs all statements below in such a session.
select set_config('app.company_id', :company_id::bigint::text, false),
       set_config('app.moves', 'on', false);

-- name: move_lock_try :value
-- Lock the move of a company for this session. Returns whether the lock was free.
select pg_try_advisory_lock(hashtextextended(format('move %s', :company_id::bigint), 0));

-- name: move_get :one
-- Return what this database knows about a company: its TIN, the same if it is verified or else an
-- empty text, whether that is verified for other companies here too, and the state of its move with
-- the other cell. The TIN is null if there is no such company.
select c.tin,
       case when c.tin_verified_at is null then '' else c.tin end as verified_tin,
       c.tin_verified_at is not null
       and exists (select
                     from unnest(companies_of_tin(c.tin)) as other (id)
                    where other.id <> c.id) as is_shared,
       m.state,
       m.cell
  from (select 1) always
  left join companies c on c.id = :company_id::bigint
  left join company_moves m on m.company_id = :company_id;

-- name: move_set :exec
-- Record the state of a company's move, and invalidate its keys in the caches of all processes.
with stored as (
  insert into company_moves as m (company_id, state, cell)
  values (:company_id, :state, :cell)
      on conflict (company_id) do update
     set state = excluded.state, cell = excluded.cell, changed_at = clock_timestamp()
)
select pg_notify('api_key_changed', key_id) from api_keys where company_id = :company_id;

-- name: move_end :exec
-- Make a company active here, and wake the processes that work for it.
with ended as (
  delete from company_moves where company_id = :company_id
)
select pg_notify('submission_due', '')
union all
select pg_notify('api_key_changed', key_id) from api_keys where company_id = :company_id;

-- name: move_keys :many
-- Return the ids of all keys of a company.
select key_id from api_keys where company_id = :company_id order by key_id;

-- name: move_under_way :many
-- Return the work on a company that processes have claimed and not finished: its kind and number.
-- A session lock of a submission is such work: its process may be paused, and send when it
-- continues.
select w.kind, count(*) as n
  from (select 'submissions' as kind
          from submissions s
         where s.company_id = :company_id
           and s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
           and s.lease_until > clock_timestamp()
        union all
        select 'locked submissions'
          from submissions s
          join pg_locks l
            on (l.classid::bigint << 32) | l.objid::bigint
               = hashtextextended(format('submission %s %s', s.company_id, s.id), 0)
         where s.company_id = :company_id
           and s.state in ('Queued', 'Sending', 'Uncertain')
           and l.locktype = 'advisory'
           and l.objsubid = 1
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
        union all
        select 'cancellations'
          from submitted_documents d
         where d.company_id = :company_id
           and d.cancelling_until is not null
           and d.cancel_sent_by > clock_timestamp()
        union all
        select 'webhook deliveries'
          from webhook_deliveries d
         where d.company_id = :company_id and d.lease_until > clock_timestamp()
        union all
        select 'requests'
          from idempotency_keys k
         where k.company_id = :company_id
           and k.status is null
           and k.lease_until > clock_timestamp()) w
 group by w.kind
 order by w.kind;

-- name: move_hold_commands :many
-- Return commands that make triggers on each table with rows of companies, which reject changes to
-- rows of companies that are held, arrive, or have left. A trigger names these companies in its
-- condition, so that it costs others next to nothing. A hold on sending may be added at any time.
with held as (
  select held_companies() as ids
)
select format(
         'create or replace trigger %I before %s on %I for each row'
         ' when (%s.%I = any (%L::bigint[])'
         ' and coalesce(current_setting(''app.moves'', true), '''') <> ''on'')'
         ' execute function reject_held_company()',
         t.name, t.event, c.name, t.row, c.owner_column, held.ids) as command
  from held
 cross join (values ('company_is_held', 'insert or update', 'new'),
                    ('company_is_held_delete', 'delete', 'old')) as t (name, event, row)
 cross join company_tables() c
 where c.name <> 'sending_holds'
   and (held.ids <> '{}'
        or exists (select from pg_trigger g where g.tgrelid = c.oid and g.tgname = t.name))
 order by c.name, t.name;

-- name: move_holds_lock :exec
-- Block changes to holds on sending until the transaction ends, so that none is added.
lock table sending_holds in share mode;

-- name: move_holds :value
-- Return the holds on the sending of a company as text, to notice one that was added.
select coalesce(string_agg(h::text, ';' order by h.id), '')
  from sending_holds h
 where h.company_id = :company_id;

-- name: move_tables :many
-- Return commands that copy the rows of a company to another database, one row for each table, in
-- an order that foreign keys allow. Tables without foreign keys, which triggers fill, come last.
-- `read_out` selects the rows here, `stage` makes a temporary table for them in the other database,
-- `clear` and `fill` replace the rows there, and `advance` moves the sequence of new ids over those
-- of the rows. `measure_out` counts and hashes the rows that are read, `measure` those that are
-- there. The order of events is kept by event_places(); people are recognised by their e-mail
-- addresses. The row of the company stays when others are cleared, because accounts refer to it.
with recursive tables as (
  select oid, name, owner_column as owner from company_tables()
), links as (
  select k.conrelid as child, k.confrelid as parent
    from pg_constraint k
   where k.contype = 'f'
     and k.conrelid <> k.confrelid
     and k.conrelid in (select oid from tables)
     and k.confrelid in (select oid from tables)
), depths as (
  select oid, 0 as depth from tables
  union
  select l.child, d.depth + 1
    from depths d
    join links l on l.parent = d.oid
), columns as (
  select t.oid,
         quote_ident(a.attname) as name,
         a.attnum,
         case t.name || '.' || a.attname
           when 'events.transaction_id' then 'p.place'
           when 'webhook_endpoints.cursor_transaction' then 'coalesce(p.place, ''0'')'
           when 'webhook_endpoints.cursor_event' then 'coalesce(p.id, 0)'
           else format('t.%I', a.attname) end as read_out,
         format('t.%I', a.attname) as read_here,
         format('s.%I', a.attname) as write,
         case when a.attidentity <> '' and t.name <> 'companies'
              then pg_get_serial_sequence(quote_ident(t.name), a.attname) end as sequence
    from tables t
    join pg_attribute a
      on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
), parts as (
  select t.name,
         case when exists (select from links l where t.oid in (l.child, l.parent))
              then (select max(d.depth) from depths d where d.oid = t.oid)
              else 1000 end as place,
         format('%I = %s', t.owner, :company_id::bigint) as condition,
         format(case t.name
                  when 'events' then ' join event_places(%s) p on p.id = t.id'
                  when 'webhook_endpoints' then
                    ' left join lateral (select e.id, e.place from event_places(%s) e'
                    ' where (e.transaction_id, e.id) <= (t.cursor_transaction, t.cursor_event)'
                    ' order by e.transaction_id desc, e.id desc limit 1) p on true'
                  else '' end,
                :company_id) as joined,
         string_agg(c.name, ', ' order by c.attnum) as names,
         string_agg(format('%s as %s', c.read_out, c.name), ', ' order by c.attnum) as read_out,
         string_agg(format('%s as %s', c.read_here, c.name), ', ' order by c.attnum) as read_here,
         string_agg(c.write, ', ' order by c.attnum) as writes,
         string_agg(format('excluded.%s', c.name), ', ' order by c.attnum) as excluded,
         max(c.sequence) as sequence,
         max(c.name) filter (where c.sequence is not null) as identity
    from tables t
    join columns c on c.oid = t.oid
   group by t.oid, t.name, t.owner
), texts as (
  select p.*,
         format('select %s from %I t%s where t.%s', p.read_out, p.name, p.joined, p.condition)
           as source,
         format('select %s from %I t where t.%s', p.read_here, p.name, p.condition) as present,
         'select count(*) as n,'
         ' coalesce(sum((''x'' || left(md5(r::text), 16))::bit(64)::bigint), 0)::text as hash'
         ' from (%s) r' as measuring
    from parts p
)
select name,
       source as read_out,
       format('create temporary table %I on commit drop as %s with no data',
              'moved_' || name, source) as stage,
       case when name = 'companies' then ''
            else format('delete from %I where %s', name, condition) end as clear,
       format('insert into %I (%s) overriding system value select %s from %I s%s',
              name, names, writes, 'moved_' || name,
              case when name = 'companies'
                   then format(' on conflict (id) do update set (%s) = row (%s)', names, excluded)
                   else '' end) as fill,
       case when sequence is null then ''
            else format('select setval(%L, m.top + 100000) from (select max(%s) as top from %I'
                        ' where %s) m, %s q where m.top >= q.last_value',
                        sequence, identity, name, condition, sequence) end as advance,
       format(measuring, source) as measure_out,
       format(measuring, present) as measure
  from texts
 order by place, name;

-- name: move_members :value
-- Return the number of people with a role in a company, also a pending one.
select count(*) from company_members where company_id = :company_id;

-- name: move_last_place :value
-- Return the number that replaces the transaction of a company's latest event.
select coalesce(max(place)::text::bigint, 0) from event_places(:company_id);

-- name: move_pass_transactions :exec
-- Use up the ids of transactions up to a number. Not in a transaction.
call pass_transactions(:target);

-- name: move_secret_keys :many
-- Return the ids of the secret keys with which the company's secrets are sealed.
select substring(s.sealed for 4) as secret_key
  from (select w.sealed_secret as sealed from webhook_secrets w where w.company_id = :company_id
        union all
        select c.sealed_key from signing_certificates c where c.company_id = :company_id
        union all
        select p.sealed_secret from portal_credentials p where p.company_id = :company_id) s
 where s.sealed is not null
 group by 1;
