-- Comparison of a company's documents with the portal's listing: the claim on it, submissions with
-- an unknown outcome, findings, and holds on sending.

-- name: comparison_keep :value
-- Renew the claims on the company and on submissions that are still claimed, in one statement. No
-- row: another process has claimed the company, and nothing is renewed.
with own as (
  update comparisons
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

-- name: comparison_end :exec
-- Release the claim on a company, unless it is lost. It is not claimed before :rest has passed.
-- After a failure, the next complete comparison may begin after :pause, doubled for each former
-- failure, at most :longest. Without a :pause it has not failed.
update comparisons
   set lease_until = clock_timestamp() + :rest::interval,
       failures = failures + (:pause::interval is not null)::int,
       retry_at = case when :pause is null then retry_at
                       else clock_timestamp()
                            + least(:longest::interval, :pause * power(2, least(failures, 10))) end
 where company_id = :company_id and fence = :fence;

-- name: comparison_basis :one
-- Return the company's own TIN, null while it is not verified; since when its sending is held; a
-- time before which the database has recorded everything that was sent, null if it is not known;
-- the latest complete comparison; the first send within :furthest; and the clock.
select case when c.tin_verified_at is not null then nullif(c.tin, '') end as own_tin,
       h.since as held_since,
       h.known_until,
       w.compared_at,
       (select min(s.last_sent_at)
          from submissions s
         where s.company_id = :company_id
           and s.last_sent_at > clock_timestamp() - :furthest::interval) as sent_from,
       clock_timestamp() as now
  from companies c
  left join sending_holds h on h.company_id = :company_id and h.released_at is null
  left join comparisons w on w.company_id = :company_id
 where c.id = :company_id;

-- name: comparison_tins :many
-- Return the TINs under which the company sent since a time.
select distinct tin
  from submissions
 where company_id = :company_id and last_sent_at > :since::timestamptz;

-- name: comparison_unknown :many
-- Return each TIN under which a submission with an unknown outcome is due, when the first of all
-- such submissions was sent, and the clock.
select tin, min(first_sent_at) as first_sent_at, clock_timestamp() as now
  from submissions
 where company_id = :company_id and state = 'Uncertain'
 group by tin
having min(not_before) <= clock_timestamp();

-- name: unknown_submissions :many
-- Return the Uncertain submissions of a TIN, those that were looked for least often first.
-- `is_free`: no process has claimed it. `needs_no_listing`: a receipt named one of its uuids, or
-- its handling began :most times without a result. `number` is the smallest one of several
-- documents, else null. `is_settled`: it was sent early enough for a listing that was requested at
-- :listed_at to be evidence of its absence, which also `confirms_absence` unless an earlier
-- confirmation is too recent.
select s.id, s.claims,
       s.lease_until is null or s.lease_until < clock_timestamp() as is_free,
       s.claims >= :most
       or exists (
         select
           from submitted_documents d
           join portal_sightings e
             on e.company_id = d.company_id and e.number = d.number
            and (e.submission_id = d.submission_id or e.submission_id = any (d.earlier_submissions))
          where d.company_id = :company_id
            and e.company_id = :company_id
            and d.submission_id = s.id
            and e.via = 'submit') as needs_no_listing,
       (select min(m.number)
          from submitted_documents m
         where m.company_id = :company_id and m.submission_id = s.id
        having count(*) > 1) as number,
       s.not_before <= clock_timestamp() as is_due,
       s.last_sent_at + :settle::interval <= :listed_at::timestamptz as is_settled,
       coalesce(s.absence_confirmed_at + :confirmation_gap::interval <= :listed_at, true)
         as confirms_absence
  from submissions s
 where s.company_id = :company_id and s.tin = :tin and s.state = 'Uncertain'
 order by s.reads, s.id;

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
           and database_identity() = (select identity from database_state)
         order by c.id
           for update skip locked) due
 where s.company_id = :company_id and s.id = due.id
returning s.id, s.state, s.on_absence, s.tin, s.fence, s.reads, s.sends, s.claims,
          s.absence_confirmations, s.absence_confirmed_at, s.submission_uid, s.possibly_received,
          s.first_sent_at, s.last_sent_at, s.client_id, s.request_sha256,
          s.last_error::text as last_error, clock_timestamp() as now;

-- name: submission_uncount :exec
-- Undo the count of a claim that was lost to another process while this one was alive, since it did
-- not crash a process.
update submissions
   set claims = greatest(claims - 1, 0)
 where company_id = :company_id and id = :id and fence > :fence;

-- name: comparison_attempts :many
-- Return every submitted document that a listed document may be: those with one of the uuids or one
-- of the numbers, oldest first. `is_foreign_if_cancelled`: if the portal shows it as cancelled, no
-- request of this service did that: none was ever begun (cancel_fence is 0), or none can be the
-- cause. For a document that is Cancelled here, the finding that its move inserted decides that.
select d.id, d.submission_id, d.document_id, d.number, d.document_type, d.issued_at, d.status,
       d.uuid, d.long_id, d.validated_at, d.updated_at,
       case when d.cancel_fence = 0 then true
            when d.status <> 'Cancelled'
            then d.cancellation_requested_at is null and not d.cancel_unclear
            else exists (select
                           from findings f
                          where f.company_id = :company_id
                            and f.kind = 'cancelled_elsewhere'
                            and f.uuid = d.uuid)
       end as is_foreign_if_cancelled,
       s.tin, s.state, s.created_at, s.possibly_received
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id
   and (d.uuid = any (:uuids::text[]) or d.number = any (:numbers::text[]))
 order by d.id;

-- name: submissions_finish :many
-- End the polls of Accepted submissions whose documents all have an outcome, and whose Valid ones
-- are all among the :listed documents: comparisons show their later changes. A submission that is
-- being polled is left for the next comparison; one that was validated late, or at an unknown time,
-- is polled until it can no longer change.
update submissions s
   set state = 'Finished', fence = fence + 1, claims = 0, reads = 0, has_outcome = true,
       lease_until = null, last_error = null, updated_at = clock_timestamp()
 where s.company_id = :company_id and s.id = any (:ids::bigint[]) and s.state = 'Accepted'
   and (s.lease_until is null or s.lease_until < clock_timestamp())
   and not exists (select
                     from submitted_documents d
                    where d.company_id = :company_id and d.submission_id = s.id
                      and (d.status in ('Submitting', 'Submitted')
                           or (d.status = 'Valid'
                               and (d.id <> all (:listed::bigint[])
                                    or d.validated_at is null
                                    or d.validated_at > d.submitted_at + interval '1 hour'))))
returning s.id;

-- name: comparison_expected :many
-- Return the documents that the portal received in a time span, and so must list. With the
-- operator's client, the portal does not list those that the company sent with its own client.
select d.id, d.number, d.document_type, d.uuid, d.submitted_at
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 where s.company_id = :company_id and d.company_id = :company_id and s.tin = :tin
   and s.state in ('Accepted', 'Finished')
   and s.last_sent_at > :since::timestamptz - interval '1 hour'
   and d.uuid is not null and d.submitted_at between :since and :until
   and (:is_own::boolean
        or not exists (
             select
               from portal_credentials c
              where c.company_id = :company_id
                and c.tin = s.tin
                and s.last_sent_at >= c.created_at
                and s.last_sent_at < coalesce(c.removed_at, 'infinity')));

-- name: comparison_move :value
-- Move a Queued submission if the portal lists a document with one of its numbers: to Uncertain if
-- it may be its document, which the portal has received at :received_at, so that the next
-- comparison adopts it; to NeedsPerson if it is another document. No row: it is no longer Queued.
update submissions
   set state = :state, fence = fence + 1, claims = 0, reads = 0, lease_until = null,
       not_before = clock_timestamp(), absence_confirmations = 0, absence_confirmed_at = null,
       first_sent_at = least(first_sent_at, :received_at::timestamptz),
       last_sent_at = greatest(last_sent_at, :received_at),
       last_error = :last_error::jsonb, updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'Queued'
returning pg_notify('submission_moved', format('%s:%s', company_id, id)) is not null;

-- name: finding_insert :value
-- Insert a finding and return its id. No row if the same finding is open or a person has resolved
-- it. A cancellation is found once.
insert into findings (company_id, kind, tin, number, document_type, uuid, other_uuid,
       submitted_document_id, received_at, cancelled_at, reason)
select :company_id::bigint, :kind, :tin, :number, :document_type, :uuid, :other_uuid,
       :submitted_document_id::bigint, :received_at::timestamptz, :cancelled_at::timestamptz,
       :reason
 where not exists (select
                     from findings f
                    where f.company_id = :company_id and f.kind = :kind and f.uuid = :uuid
                      and (f.resolved_at is null
                           or f.resolved_by = 'person'
                           or f.kind = 'cancelled_elsewhere'))
    on conflict do nothing
returning id;

-- name: findings_insert_cancelled :many
-- Insert findings for documents that others cancelled. No row for one that was inserted before: a
-- cancellation is found once. Ordered as a comparison inserts them: the two do not deadlock.
insert into findings (company_id, kind, tin, number, document_type, uuid,
       submitted_document_id, received_at, cancelled_at, reason)
select d.company_id, 'cancelled_elsewhere', s.tin, d.number, d.document_type, d.uuid, d.id,
       d.submitted_at, d.cancelled_at, d.cancel_reason
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id and d.id = any (:ids::bigint[])
   and not exists (select
                     from findings f
                    where f.company_id = :company_id
                      and f.kind = 'cancelled_elsewhere'
                      and f.uuid = d.uuid)
 order by d.uuid collate "C"
    on conflict do nothing
returning number, uuid;

-- name: findings_clear :many
-- Resolve findings of a TIN that a complete comparison since :since did not find again. One without
-- a receipt time counts as received when it was found. For a duplicate, both documents must be
-- listed. Resolve cancellations that were found more than :after ago and are recorded here too.
update findings f
   set resolved_at = clock_timestamp(), resolved_by = 'comparison'
 where f.company_id = :company_id and f.resolved_at is null
   and (f.tin = :tin
        and coalesce(f.received_at, f.found_at) between :since and :until
        and f.kind || ' ' || f.uuid <> all (:still::text[])
        and (f.other_uuid is null
             or (f.uuid = any (:listed::text[]) and f.other_uuid = any (:listed)))
        or f.kind = 'cancelled_elsewhere'
        and f.found_at < clock_timestamp() - :after::interval
        and exists (select
                      from submitted_documents d
                     where d.company_id = :company_id
                       and d.id = f.submitted_document_id
                       and d.status = 'Cancelled'))
returning f.id;

-- name: findings_open :many
-- Return the open findings of a company. Only duplicates and orphans are documents that a person
-- may want to cancel.
select id, kind, tin, number, document_type, uuid, other_uuid, submitted_document_id, received_at,
       case when kind in ('duplicate', 'orphan') then received_at + interval '72 hours'
            end as cancellable_until,
       cancelled_at, reason, found_at
  from findings
 where company_id = :company_id and resolved_at is null
 order by id;

-- name: finding_resolve :value
-- Resolve a finding for a person. No row: it does not exist, or is resolved.
update findings
   set resolved_at = clock_timestamp(), resolved_by = 'person', note = :note
 where company_id = :company_id and id = :id and resolved_at is null
returning id;

-- name: comparison_done :exec
-- Record a complete comparison, whose listing was requested at :compared_at. Nothing is recorded on
-- another database than the noted one, whose rows may be older than the listing.
insert into comparisons (company_id, compared_at, listed)
select :company_id::bigint, :compared_at::timestamptz, :listed::int
 where database_identity() = (select identity from database_state)
    on conflict (company_id) do update
   set compared_at = excluded.compared_at, listed = excluded.listed, failures = 0,
       retry_at = null;

-- name: hold_release :value
-- End the hold of a company that was compared after everything sent before had settled, if all
-- documents at the portal are accounted for. No row in another database than the noted one.
update sending_holds h
   set released_at = clock_timestamp()
 where h.company_id = :company_id and h.released_at is null
   and database_identity() = (select identity from database_state)
   and exists (select
                 from comparisons w
                where w.company_id = :company_id and w.compared_at >= h.since + :settle::interval)
   and not exists (select
                     from findings f
                    where f.company_id = :company_id
                      and f.resolved_at is null
                      and f.kind in ('duplicate', 'orphan'))
returning pg_notify('submission_due', '') is not null;

-- name: database_identity_get :one
-- Return the identity of this database, and the recorded one, which is null in a new database.
select database_identity() as seen, (select identity from database_state) as recorded;

-- name: sending_is_held :value
-- Return true while sending is held for a company.
select exists (select
                 from sending_holds
                where company_id = :company_id and released_at is null);

-- name: sending_bars :one
-- Return why a document may not be sent now: the hold on the company, and a finding with its
-- number. A finding for the :former submission does not prevent the same bytes from being sent
-- again, because the portal recognises them.
select h.since, h.reason, f.id as finding, f.uuid
  from (select) nothing
  left join sending_holds h on h.company_id = :company_id and h.released_at is null
  left join findings f
         on f.company_id = :company_id
        and f.resolved_at is null
        and f.kind in ('duplicate', 'orphan')
        and f.number = :number and f.document_type = :document_type
        and f.submitted_document_id is distinct from coalesce(:former::bigint, 0)
 limit 1;

-- name: odd_row_insert :value
-- Record a row of the portal that could not be read. Returns true if it was not recorded before. No
-- row: it was seen less than a minute ago.
insert into portal_odd_rows as o (company_id, row_key, operation, tin, number, problems, shown)
values (:company_id, :row_key, :operation, :tin, :number, :problems, :shown)
    on conflict (company_id, row_key) do update
   set operation = excluded.operation, problems = excluded.problems, shown = excluded.shown,
       last_seen_at = clock_timestamp(), times = o.times + 1
 where o.last_seen_at < clock_timestamp() - interval '1 minute'
returning times = 1;
