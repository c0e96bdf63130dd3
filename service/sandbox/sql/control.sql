-- State of the administration API: settings, errors to inject, rate limits, counts.

-- name: state_get :value
select value from state;

-- name: state_put :exec
insert into state (id, value)
values (1, :value)
    on conflict (id) do update set value = excluded.value;

-- name: code_all :many
-- Return the limits of codes. An open one is infinite.
select list, code, coalesce(active_from, -9e999) as active_from,
       coalesce(active_to, 9e999) as active_to
  from codes;

-- name: code_put :exec
insert into codes (list, code, active_from, active_to)
values (:list, :code, :active_from, :active_to)
on conflict (list, code) do update
   set active_from = excluded.active_from, active_to = excluded.active_to;

-- name: fault_insert :value
insert into faults (operation, kind, remaining, number, members)
values (:operation, :kind, :times, :number, :members)
returning id;

-- name: fault_list :many
select id, operation, kind, remaining as times, number, members from faults order by id;

-- name: fault_waiting :many
-- Return the errors that requests of the operation may meet, oldest first.
select id, members from faults where operation in (:operation, '*') order by id;

-- name: fault_use :exec
update faults set remaining = remaining - 1 where id = :id;

-- name: fault_forget_used :exec
delete from faults where remaining <= 0;

-- name: fault_count :exec
insert into served (label, count)
values (:label, 1)
    on conflict (label) do update set count = count + 1;

-- name: fault_counts :many
select label, count from served order by label;

-- name: fault_clear :exec
delete from faults;

-- name: quota_take :one
-- Count one request in the current window, or begin a new one.
insert into quotas (name, subject, started_at, used) values (:name, :subject, :now, 1)
on conflict (name, subject) do update
   set used = case when started_at + :span <= :now then 1 else used + 1 end,
       started_at = case when started_at + :span <= :now then :now else started_at end
returning started_at, used;

-- name: call_count :exec
insert into calls (operation, count, last_at) values (:operation, 1, :now)
on conflict (operation) do update set count = count + 1, last_at = excluded.last_at;

-- name: call_list :many
select operation, count, last_at from calls order by operation;

-- name: answer_count :exec
insert into answers (operation, status, count) values (:operation, :status, 1)
on conflict (operation, status) do update set count = count + 1;

-- name: answer_list :many
select operation, status, count from answers order by operation, status;
