-- Reconciliation of Uncertain submissions: the claim on a company, and which submissions are
-- processed together. These statements concern the submissions of one taxpayer, :tin, because a
-- listing belongs to one taxpayer.

-- name: reconciliation_begin :value
-- Claim the reconciliation of a company and return the fencing token. No row: another process has
-- it.
insert into reconciliations as r (company_id, fence, lease_until)
values (:company_id, 1, clock_timestamp() + :lease::interval)
    on conflict (company_id) do update
   set fence = r.fence + 1, lease_until = excluded.lease_until
 where r.lease_until is null or r.lease_until < clock_timestamp()
returning fence;

-- name: submission_hand_back :exec
-- Release the claim on the Uncertain submission that started a reconciliation. That claim was not
-- counted.
update submissions
   set lease_until = null
 where company_id = :company_id and id = :id and fence = :fence and lease_until is not null;

-- name: reconciliation_keep :value
-- Renew the claims on the company and on submissions that are still claimed, in one statement. No
-- row: another process has claimed the company, and nothing is renewed.
with own as (
  update reconciliations
     set lease_until = clock_timestamp() + :lease::interval
   where company_id = :company_id and fence = :fence and lease_until is not null
  returning company_id
), kept as (
  update submissions s
     set lease_until = clock_timestamp() + :lease
    from own, unnest(:ids::bigint[], :fences::bigint[]) held (id, fence)
   where s.company_id = :company_id
     and s.id = held.id
     and s.fence = held.fence
     and s.lease_until is not null
)
select true from own;

-- name: reconciliation_end :exec
-- Release the claim on the company. It can be claimed again after :rest.
update reconciliations
   set lease_until = clock_timestamp() + :rest::interval
 where company_id = :company_id and fence = :fence;

-- name: reconciliation_outlook :one
-- Return the taxpayer of an Uncertain submission, when the Uncertain submissions of that taxpayer
-- were first and last sent, and the clock. No row: it is no longer Uncertain.
select h.tin, min(s.first_sent_at) as first_sent_at, max(s.last_sent_at) as last_sent_at,
       clock_timestamp() as now
  from submissions h
  join submissions s on s.company_id = h.company_id and s.tin = h.tin
 where h.company_id = :company_id and h.id = :id and h.state = 'Uncertain'
   and s.company_id = :company_id and s.state = 'Uncertain'
 group by h.tin;

-- name: reconciliation_left :one
-- Return how many submissions are Uncertain, and for how many a complete listing could bring more:
-- not for those that were :asked for by number and were sent too late for evidence of absence.
select count(*) as n,
       count(*) filter (
         where not (id = any (:asked::bigint[])
                    and last_sent_at + :settle::interval > :listed_at::timestamptz)) as open
  from submissions
 where company_id = :company_id and tin = :tin and state = 'Uncertain';

-- name: reconciliation_known :many
-- Return submissions that need no listing: a receipt named one of their uuids, or their handling
-- began :most times without a result.
select s.id, s.claims
  from submissions s
 where s.company_id = :company_id and s.tin = :tin and s.state = 'Uncertain' and s.id > :after
   and (s.lease_until is null or s.lease_until < clock_timestamp())
   and (s.claims >= :most
        or exists (select
                     from submitted_documents d
                     join portal_sightings e
                       on e.company_id = d.company_id and e.number = d.number
                      and (e.submission_id = d.submission_id
                           or e.submission_id = any (d.earlier_submissions))
                    where d.company_id = :company_id
                      and e.company_id = :company_id
                      and d.submission_id = s.id
                      and e.via = 'submit'))
 order by s.id
 limit :batch;

-- name: reconciliation_numbered :many
-- Return submissions with a document of one of some numbers.
select s.id, s.claims
  from submissions s
 where s.company_id = :company_id and s.tin = :tin and s.state = 'Uncertain'
   and (s.lease_until is null or s.lease_until < clock_timestamp())
   and s.id in (select d.submission_id
                  from submitted_documents d
                 where d.company_id = :company_id and d.number = any (:numbers::text[]))
 order by s.id
 limit :batch;

-- name: reconciliation_many_documents :many
-- Return submissions with several documents, each with its smallest number, those that were looked
-- for least often first.
select s.id, d.number
  from submissions s
 cross join lateral (select min(m.number) as number, count(*) as n
                       from submitted_documents m
                      where m.company_id = :company_id and m.submission_id = s.id) d
 where s.company_id = :company_id and s.tin = :tin and s.state = 'Uncertain' and d.n > 1
   and (s.lease_until is null or s.lease_until < clock_timestamp())
 order by s.reads, s.id
 limit :most;

-- name: reconciliation_receipts :many
-- Return the uids of receipts that name a document of the Uncertain submissions.
select distinct e.submission_uid
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
  join portal_sightings e
    on e.company_id = d.company_id and e.number = d.number
   and (e.submission_id = d.submission_id or e.submission_id = any (d.earlier_submissions))
 where s.company_id = :company_id and d.company_id = :company_id and e.company_id = :company_id
   and s.tin = :tin
   and s.state = 'Uncertain'
   and e.via in ('submit', 'search')
   and e.submission_uid is not null
 limit :most;

-- name: reconciliation_rest :many
-- Return submissions that are due, and, if :is_complete, those whose absence a listing requested at
-- :listed_at confirms.
select id, claims
  from submissions
 where company_id = :company_id and tin = :tin and state = 'Uncertain' and id > :after
   and (lease_until is null or lease_until < clock_timestamp())
   and (not_before <= clock_timestamp()
        or (:is_complete::boolean
            and last_sent_at + :settle::interval <= :listed_at::timestamptz
            and (absence_confirmed_at is null
                or absence_confirmed_at + :confirmation_gap::interval <= :listed_at)))
 order by id
 limit :batch;

-- name: submission_claim_batch :many
-- Claim Uncertain submissions that are processed now, and count the claim. Skips those that another
-- process has claimed. In another database than the noted one, nothing is claimed.
update submissions s
   set fence = next_fence(s.fence), claims = s.claims + 1,
       lease_until = clock_timestamp() + :lease::interval
  from (select c.id
          from submissions c
         where c.company_id = :company_id and c.id = any (:ids::bigint[]) and c.state = 'Uncertain'
           and (c.lease_until is null or c.lease_until < clock_timestamp())
           and database_identity() = (select identity from database_identities)
         order by c.id
           for update skip locked) due
 where s.company_id = :company_id and s.id = due.id
returning s.id, s.state, s.on_absence, s.tin, s.fence, s.reads, s.claims, s.absence_confirmations,
          s.absence_confirmed_at,
          s.submission_uid, s.possibly_received, s.first_sent_at, s.last_sent_at,
          s.last_error::text as last_error, clock_timestamp() as now;

-- name: submission_uncount :exec
-- Undo the count of a claim that was lost to another process while this one was alive, since it did
-- not crash a process.
update submissions
   set claims = greatest(claims - 1, 0)
 where company_id = :company_id and id = :id and fence > :fence;
