-- Comparing a company's documents with what the portal lists, what was found, and the hold on sending.

-- name: sweep_claim :one
-- A company that is due to be compared, and the fence of the claim. No row: none is.
select company_id, fence from claim_sweep(:lease::interval, :every::interval, :settle::interval);

-- name: sweep_companies :many
select company_id from sending_companies();

-- name: sweep_ground :one
-- The company's own TIN, null while it is not verified; the TINs that it has sent under for :span, or for :most where its
-- sending is held; since when it is held, and the clock.
select case when c.tin_verified_at is not null then nullif(c.tin, '') end as own_tin,
       array(select distinct s.tin
               from submissions s
              where s.company_id = :company_id and s.last_sent_at > clock_timestamp() - case when h.since is null then :span::interval else :most::interval end) as tins,
       h.since as held_since,
       clock_timestamp() as now
  from companies c
  left join sending_holds h on h.company_id = :company_id and h.released_at is null
 where c.id = :company_id;

-- name: sweep_attempts :many
-- Every attempt that a listed document may be: those with one of the uuids or one of the numbers, oldest first.
-- `is_foreign_if_cancelled`: if the portal shows it as cancelled, no request of this service did that. That is decided when
-- the document is moved to Cancelled; until then it is decided as for such a move.
select d.id, d.submission_id, d.number, d.document_type, d.issued_at, d.status, d.uuid, d.submitted_at,
       case when d.cancel_fence = 0 then true
            when d.status <> 'Cancelled' then d.cancellation_requested_at is null and not d.cancel_unclear
            else exists (select
                           from sweep_findings f
                          where f.company_id = :company_id and f.kind = 'cancelled_elsewhere' and f.uuid = d.uuid)
       end as is_foreign_if_cancelled,
       s.tin, s.state, s.created_at, s.possibly_received
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id
   and (d.uuid = any (:uuids::text[]) or d.number = any (:numbers::text[]))
 order by d.id;

-- name: sweep_expected :many
-- What the portal has taken within a time, and so lists.
select d.id, d.number, d.document_type, d.uuid, d.submitted_at
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 where s.company_id = :company_id and d.company_id = :company_id and s.tin = :tin
   and s.state in ('Accepted', 'Finished') and s.last_sent_at > :since::timestamptz - interval '1 hour'
   and d.uuid is not null and d.submitted_at between :since and :until;

-- name: sweep_elsewhere :many
-- Those of some uuids that documents of other companies have.
select uuid from uuids_elsewhere(:company_id, :uuids::text[]);

-- name: sweep_attempted_elsewhere :many
-- Those of some listed documents that other companies may have sent under the TIN without knowing the outcome yet.
select uuid
  from uuids_attempted_elsewhere(:company_id, :tin, :uuids::text[], :numbers::text[], :types::text[],
                                 :issue_times::timestamptz[]);

-- name: sweep_shared :many
-- Those of some uuids that other companies have recorded as theirs.
select uuid from uuids_shared(:company_id, :uuids::text[]);

-- name: sweep_adopt :value
-- The portal has a submission that we believe not sent: it was sent, by whom we no longer know, and is Uncertain. What
-- reconciles it takes its documents over. No row: it is no longer Queued.
update submissions
   set state = 'Uncertain', fence = fence + 1, claims = 0, looks = 0, lease_until = null, not_before = clock_timestamp(),
       absence_confirmations = 0, absence_confirmed_at = null,
       first_sent_at = least(first_sent_at, :received_at::timestamptz),
       last_sent_at = greatest(last_sent_at, :received_at),
       last_error = :last_error::jsonb, updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'Queued'
returning pg_notify('submission_moved', format('%s:%s', company_id, id)) is not null;

-- name: sweep_stop :value
-- What is not to be sent without a person, since the portal has another document of its number.
update submissions
   set state = 'NeedsPerson', fence = fence + 1, claims = 0, lease_until = null,
       last_error = :last_error::jsonb, updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'Queued'
returning pg_notify('submission_moved', format('%s:%s', company_id, id)) is not null;

-- name: finding_insert :value
-- The id of a new finding. No row where the same one is open, or a person has settled it. A cancellation is found once.
insert into sweep_findings (company_id, kind, tin, number, document_type, uuid, other_uuid, submitted_document_id,
       received_at, cancelled_at, reason)
select :company_id::bigint, :kind, :tin, :number, :document_type, :uuid, :other_uuid, :submitted_document_id::bigint,
       :received_at::timestamptz, :cancelled_at::timestamptz, :reason
 where not exists (select
                     from sweep_findings f
                    where f.company_id = :company_id and f.kind = :kind and f.uuid = :uuid
                      and (f.resolved_at is null or f.resolved_by = 'person' or f.kind = 'cancelled_elsewhere'))
    on conflict do nothing
returning id;

-- name: findings_insert_cancelled :many
-- Inserts findings of documents that others cancelled. No row where one was inserted before: a cancellation is found once.
-- Ordered as a sweep inserts them, so that the two do not deadlock.
insert into sweep_findings (company_id, kind, tin, number, document_type, uuid, submitted_document_id, received_at,
       cancelled_at, reason)
select d.company_id, 'cancelled_elsewhere', s.tin, d.number, d.document_type, d.uuid, d.id, d.submitted_at,
       d.cancelled_at, d.cancel_reason
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id and d.id = any (:ids::bigint[])
   and not exists (select
                     from sweep_findings f
                    where f.company_id = :company_id and f.kind = 'cancelled_elsewhere' and f.uuid = d.uuid)
 order by d.uuid collate "C"
    on conflict do nothing
returning number, uuid;

-- name: findings_clear :many
-- Settles what a complete comparison of a TIN since :since found no more; of a duplicate both documents have to be in it.
update sweep_findings
   set resolved_at = clock_timestamp(), resolved_by = 'sweep'
 where company_id = :company_id and tin = :tin and resolved_at is null
   and received_at between :since and :until
   and kind || ' ' || uuid <> all (:still::text[])
   and (other_uuid is null or (uuid = any (:listed::text[]) and other_uuid = any (:listed)))
returning id;

-- name: findings_expire :many
-- Settles the cancellations that were found more than :after ago and are recorded here too: they were shown for long enough.
update sweep_findings f
   set resolved_at = clock_timestamp(), resolved_by = 'sweep'
 where f.company_id = :company_id and f.resolved_at is null and f.kind = 'cancelled_elsewhere'
   and f.found_at < clock_timestamp() - :after::interval
   and exists (select
                 from submitted_documents d
                where d.company_id = :company_id and d.id = f.submitted_document_id and d.status = 'Cancelled')
returning f.id;

-- name: findings_settle :many
-- Settles what was proposed for the documents of a submission that a person has settled.
update sweep_findings f
   set resolved_at = clock_timestamp(), resolved_by = 'person', note = :note
 where f.company_id = :company_id and f.resolved_at is null and f.kind = 'adoptable'
   and f.submitted_document_id in (select d.id
                                     from submitted_documents d
                                    where d.company_id = :company_id and d.submission_id = :submission_id)
returning f.id;

-- name: findings_open :many
-- Only duplicates and orphans are documents that somebody may want to cancel.
select id, kind, tin, number, document_type, uuid, other_uuid, submitted_document_id, received_at,
       case when kind in ('duplicate', 'orphan') then received_at + interval '72 hours' end as cancellable_until,
       cancelled_at, reason, found_at
  from sweep_findings
 where company_id = :company_id and resolved_at is null
 order by id;

-- name: finding_company :value
select company_of_finding(:id);

-- name: finding_resolve :value
-- By a person. No row: there is none, or it is settled.
update sweep_findings
   set resolved_at = clock_timestamp(), resolved_by = 'person', note = :note
 where company_id = :company_id and id = :id and resolved_at is null
returning id;

-- name: sweep_done :exec
-- A complete comparison, whose listing was asked for at :swept_at.
insert into sweeps (company_id, swept_at, listed, found)
values (:company_id, :swept_at, :listed, :found)
    on conflict (company_id) do update
   set swept_at = excluded.swept_at, listed = excluded.listed, found = excluded.found, lease_until = null;

-- name: hold_set :value
-- Holds back the sending of every company that has a key; how many were not held before.
select hold_sending(:reason);

-- name: hold_release :value
-- Ends the hold of a company that was compared since everything sent before has settled, where the portal has nothing
-- that we cannot account for.
update sending_holds h
   set released_at = clock_timestamp()
 where h.company_id = :company_id and h.released_at is null
   and exists (select from sweeps w where w.company_id = :company_id and w.swept_at >= h.since + :settle::interval)
   and not exists (select
                     from sweep_findings f
                    where f.company_id = :company_id and f.resolved_at is null and f.kind in ('duplicate', 'orphan'))
returning pg_notify('submission_due', '') is not null;

-- name: database_note :value
-- Notes on which database this is; true where that is another than before, and so sending is held.
select record_database_identity();

-- name: sending_bars :one
-- Why a document may not be sent now: the hold on the company, and what the portal has under its number. What is taken
-- for the :former attempt itself does not keep its very bytes from being sent again: the portal knows them.
select h.since, h.reason, f.id as finding, f.uuid
  from (select) nothing
  left join sending_holds h on h.company_id = :company_id and h.released_at is null
  left join sweep_findings f
         on f.company_id = :company_id and f.resolved_at is null and f.kind in ('duplicate', 'orphan')
        and f.number = :number and f.document_type = :document_type
        and f.submitted_document_id is distinct from coalesce(:former::bigint, 0)
 limit 1;

-- name: attention_list :many
-- What waits for a person, of all companies, the longest first.
select kind, company_id, id, since, facts::text as facts from attention();

-- name: odd_row_insert :value
-- Records a row of the portal that could not be read; true for one that was not recorded before. No row: it was seen less
-- than a minute ago.
insert into portal_odd_rows as o (company_id, row_key, operation, tin, number, problems, shown)
values (:company_id, :row_key, :operation, :tin, :number, :problems, :shown)
    on conflict (company_id, row_key) do update
   set operation = excluded.operation, problems = excluded.problems, shown = excluded.shown,
       last_seen_at = clock_timestamp(), times = o.times + 1
 where o.last_seen_at < clock_timestamp() - interval '1 minute'
returning times = 1;

-- name: odd_rows_list :many
-- What the portal showed within :span and could not be read, of all companies, the oldest first.
select company_id, id, since, facts::text as facts from portal_odd_rows_since(:span::interval);
