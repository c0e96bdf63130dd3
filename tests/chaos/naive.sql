-- Jobs of the naive worker.

-- name: naive_prepare :exec
create table naive_jobs (
  id          bigint primary key,
  body        bytea not null,
  due_at      timestamptz not null,
  lease_until timestamptz,
  is_done     boolean not null default false
);

-- name: naive_insert :exec
insert into naive_jobs (id, body, due_at)
values (:id, :body, clock_timestamp() + :due::interval);

-- name: naive_claim :one
update naive_jobs
   set lease_until = clock_timestamp() + :lease::interval
 where id = (select id
               from naive_jobs
              where not is_done and due_at <= clock_timestamp()
                and (lease_until is null or lease_until < clock_timestamp())
              order by id
                for update skip locked
              limit 1)
returning id, body;

-- name: naive_release :exec
update naive_jobs set lease_until = null, is_done = :is_done where id = :id;

-- name: naive_open :value
select count(*) from naive_jobs where not is_done;
