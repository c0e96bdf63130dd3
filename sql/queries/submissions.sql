-- Submissions and their documents. A statement that takes :fence changes nothing and returns no row
-- if the submission has been claimed again since.

-- name: submission_insert :one
-- Insert a submission before anything is sent. With a :lease the caller claims it at once; without,
-- a worker takes it after :delay.
insert into submissions (company_id, attempt_key, tin, on_absence, possibly_received, fence,
       lease_until, not_before)
values (:company_id, :attempt_key, :tin, :on_absence, :possibly_received, 1,
        clock_timestamp() + :lease::interval,
        clock_timestamp() + coalesce(:delay::interval, interval '0'))
returning id, fence;

-- name: submitted_document_insert :value
-- Insert a document of a submission with its bytes, and count the attempt of the record that it is
-- a version of.
-- Can violate submitted_documents_one_live_per_document if another submission has a live document
-- of it.
with subject as (
  update document_states
     set attempts = attempts + 1, is_changed = false, status = 'Submitting',
         failed_outcome = null, outcome_at = null, updated_at = clock_timestamp()
   where company_id = :company_id and id = :document_id
  returning id, kind
), noted as (
  insert into events (company_id, type, data)
  select :company_id, kind || '.submitting', subject_ids(kind, id) from subject
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id, 'submit', document_name(kind, id), decode(:document_hash, 'hex')
    from subject
), submitted as (
  insert into submitted_documents (company_id, submission_id, kind, document_id, number,
         document_type, document_version, issued_at, document_hash)
  select :company_id, :submission_id, kind, id, :number, :document_type, :document_version,
         :issued_at, :document_hash
    from subject
  returning id
)
insert into submitted_contents (company_id, submitted_document_id, content)
select :company_id, id, :content from submitted
returning submitted_document_id;

-- name: submission_refuse :exec
-- Record that the submission of a locked document was refused before anything was stored for it: as
-- its last submission, and as an event. :failure is that of submission_outcome().
with subject as (
  update document_states
     set failed_outcome = submission_outcome('NotSent', null, refused.at, :failure::jsonb),
         outcome_at = refused.at, updated_at = refused.at
    from clock_timestamp() as refused(at)
   where company_id = :company_id and id = :document_id
  returning id, kind
)
insert into events (company_id, type, data)
select :company_id, kind || '.not_sent',
       subject_ids(kind, id)
         || jsonb_build_object('status', 'NotSent') || (:failure - 'errors')
  from subject;

-- name: submission_confirmed_absent :one
-- Return the bytes and issue time of the latest submission of a document, if they were sent, also
-- by an earlier submission, and confirmed absent.
select d.id, c.content, d.issued_at
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
  join submitted_contents c on c.company_id = d.company_id and c.submitted_document_id = d.id
 where d.company_id = :company_id and s.company_id = :company_id and c.company_id = :company_id
   and s.state = 'NotReceived' and (s.first_sent_at is not null or s.possibly_received)
   and d.id = (select max(id)
                 from submitted_documents
                where company_id = :company_id and document_id = :document_id);

-- name: submission_get :one
select id, state, on_absence, tin, fence, reads, sends, claims, absence_confirmations,
       absence_confirmed_at, submission_uid, possibly_received, first_sent_at, last_sent_at,
       client_id, request_sha256, last_error::text as last_error, clock_timestamp() as now
  from submissions
 where company_id = :company_id and id = :id;

-- name: submission_of_subject :one
-- Return the submission with the latest version of a document, and the state of both. `is_held`: it
-- is sent when the hold on sending ends. `portal_wait` is the time that the portal asked to wait,
-- less what has passed; null if it asked for none.
select s.id, d.id as submitted_document_id, s.state, d.status,
       d.errors::text as errors,
       s.last_error::text as last_error,
       s.state = 'Queued'
       and exists (select
                     from sending_holds h
                    where h.company_id = :company_id and h.released_at is null) as is_held,
       case when s.state = 'NotReceived' and s.not_before > s.updated_at
            then greatest(s.not_before - clock_timestamp(), interval '1 second')
       end as portal_wait
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id
   and d.document_id = :document_id
 order by d.id desc
 limit 1;

-- name: submission_of_attempt :one
-- Return a submission by the key that was chosen before its insert, when it is unknown whether that
-- was committed.
select id, fence from submissions where company_id = :company_id and attempt_key = :attempt_key;

-- name: submission_send :one
-- Move a submission from Queued to Sending, before its first byte is sent. One that is found in
-- Sending later may have been sent. No row also while sending is held, after a request with another
-- hash, if the submission has other documents than the request, if the client is the company's own
-- and the company has none any more, and on another database than the recorded one, because its
-- rows may be older than what was sent. Nothing may be sent if `confirmation` is null, or has
-- changed after the commit.
with own as (
  select 1
    from portal_credentials
   where company_id = :company_id and removed_at is null
     and tin = (select tin from submissions where company_id = :company_id and id = :id)
     for share
)
update submissions
   set state = 'Sending', sends = sends + 1, absence_confirmations = 0, absence_confirmed_at = null,
       first_sent_at = coalesce(first_sent_at, clock_timestamp()), last_sent_at = clock_timestamp(),
       request_sha256 = :request_sha256, client_id = :client_id,
       lease_until = clock_timestamp() + :lease::interval, updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and fence = :fence and state = 'Queued'
   and (request_sha256 is null or request_sha256 = :request_sha256)
   and :document_hashes::text[] = array(
         select document_hash
           from submitted_documents
          where company_id = :company_id and submission_id = :id
          order by id)
   and (not :is_own::boolean or exists (select from own))
   and not exists (select
                     from sending_holds h
                    where h.company_id = :company_id and h.released_at is null)
   and database_identity() = (select identity from database_state)
returning send_confirmation() as confirmation;

-- name: submission_move :many
-- Record results of submissions: set the next state, release the claim, and wait `delay` seconds
-- before the next step. :moves is an array of {id, fence, expected, next, reads, confirms_absence,
-- still_sent, possibly_received, has_outcome, delay, submission_uid, last_error}.
-- `confirms_absence` counts one more absence confirmation. `still_sent` means that a process may be
-- sending even now. An error for which many wait keeps as `since` the time since when it is the
-- same. Returns the ids of those whose claim was valid, and not released with the same result.
update submissions s
   set state = m.next,
       reads = m.reads,
       claims = 0,
       absence_confirmations = case when m.still_sent then 0
           else s.absence_confirmations + m.confirms_absence::int end,
       absence_confirmed_at = case when m.still_sent then null
                        when m.confirms_absence then clock_timestamp()
                        else s.absence_confirmed_at end,
       last_sent_at = case when m.still_sent then clock_timestamp() else s.last_sent_at end,
       possibly_received = m.possibly_received,
       has_outcome = m.has_outcome,
       lease_until = null,
       not_before = clock_timestamp() + make_interval(secs => m.delay),
       submission_uid = coalesce(m.submission_uid, s.submission_uid),
       last_error = case when m.last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart')
                         then m.last_error || jsonb_build_object('since', coalesce(
                                case when s.last_error ->> 'code' = m.last_error ->> 'code'
                                     then s.last_error -> 'since' end,
                                to_jsonb(clock_timestamp())))
                         else m.last_error end,
       updated_at = clock_timestamp()
  from (select c.id as row_id, w.*
          from jsonb_to_recordset(:moves::jsonb) as w (
                 id bigint, fence bigint, expected text, next text, reads int,
                 confirms_absence boolean, still_sent boolean, possibly_received boolean,
                 has_outcome boolean, delay double precision, submission_uid text,
                 last_error jsonb)
          join submissions c on c.company_id = :company_id and c.id = w.id
         order by c.id
           for update of c) m
 where s.company_id = :company_id and s.id = m.row_id
   and s.fence = m.fence and s.lease_until is not null and s.state = m.expected
returning s.id,
          pg_notify('submission_moved', format('%s:%s', s.company_id, s.id)) is not null
            as is_notified;

-- name: submission_release :exec
-- Release claims without a result, and count them no more. :given is an array of {id, fence,
-- delay}, with the delay in seconds, or null to keep the due time.
update submissions s
   set lease_until = null,
       claims = greatest(s.claims - 1, 0),
       not_before = coalesce(clock_timestamp() + make_interval(secs => h.delay), s.not_before)
  from (select c.id as row_id, g.fence, g.delay
          from jsonb_to_recordset(:given::jsonb) as g (
                 id bigint, fence bigint, delay double precision)
          join submissions c on c.company_id = :company_id and c.id = g.id
         order by c.id
           for update of c) h
 where s.company_id = :company_id
   and s.id = h.row_id
   and s.fence = h.fence
   and s.lease_until is not null;

-- name: submission_set_aside :exec
-- Keep a claim unused for :delay, because a paused process may still work on the submission. A
-- lease without a claim does not block the submissions behind it.
update submissions
   set claims = 0, lease_until = clock_timestamp() + :delay::interval
 where company_id = :company_id and id = :id and fence = :fence and state = 'Queued';

-- name: submission_unsent_lock :value
-- Lock a claimed submission that was never sent, and return its id. No row: it was sent, or the
-- claim is lost.
select id
  from submissions
 where company_id = :company_id and id = :id and fence = :fence
   and state = 'Queued' and on_absence = 'retry' and first_sent_at is null
   for update;

-- name: submissions_unsent :many
-- Return a locked submission that was never sent, then the others of the same taxpayer that are not
-- claimed, oldest first, and lock them: the size in bytes and the numbers of their documents. Those
-- with a claim that gave no result are left out and go alone. Does not wait for locks.
select s.id, sent.size, sent.numbers
  from submissions s
 cross join lateral (
         select sum(octet_length(c.content)) as size, array_agg(d.number) as numbers
           from submitted_documents d
           join submitted_contents c on c.company_id = d.company_id
                                        and c.submitted_document_id = d.id
          where d.company_id = :company_id and c.company_id = :company_id
            and d.submission_id = s.id) sent
 where s.company_id = :company_id and s.tin = :tin
   and s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null
       and not s.possibly_received
   and (s.id = :id
        or s.claims = 0 and (s.lease_until is null or s.lease_until < clock_timestamp()))
 order by s.id <> :id, s.id
 limit :most
   for update of s skip locked;

-- name: submission_merge :exec
-- Move the documents of locked submissions that were never sent to another one, and end them.
-- Earlier claims on them become invalid.
with merged as (
  update submissions
     set state = 'Merged', merged_into = :into, fence = fence + 1, claims = 0, lease_until = null,
         updated_at = clock_timestamp()
   where company_id = :company_id
     and id = any (:ids::bigint[])
     and state = 'Queued'
     and first_sent_at is null
  returning id, pg_notify('submission_moved', format('%s:%s', company_id, id))
)
update submitted_documents d
   set submission_id = :into, updated_at = clock_timestamp()
  from merged m
 where d.company_id = :company_id and d.submission_id = m.id;

-- name: submission_contents :many
-- Return the bytes of the documents of submissions, in the order of a request.
select d.submission_id, d.number, d.document_hash, c.content
  from submitted_documents d
  join submitted_contents c on c.company_id = d.company_id and c.submitted_document_id = d.id
 where d.company_id = :company_id and c.company_id = :company_id
   and d.submission_id = any (:ids::bigint[])
 order by d.id;

-- name: submission_part :exec
-- Move some documents of a submission that was sent into a new one, which keeps on_absence and the
-- times of sending.
with part as (
  insert into submissions (company_id, attempt_key, tin, on_absence, state, split_from,
         submission_uid, first_sent_at, last_sent_at, client_id, possibly_received, last_error)
  select company_id, :attempt_key, tin, on_absence, :state, id, :submission_uid, first_sent_at,
         last_sent_at, client_id, possibly_received or :possibly_received, :last_error::jsonb
    from submissions
   where company_id = :company_id and id = :id
  returning id
)
update submitted_documents d
   set submission_id = part.id, earlier_submissions = d.earlier_submissions || d.submission_id,
       updated_at = clock_timestamp()
  from part
 where d.company_id = :company_id
   and d.submission_id = :id
   and d.id = any (:document_ids::bigint[]);

-- name: submission_documents :many
select submission_id, id, number, document_type, issued_at, status, uuid, long_id, validated_at
  from submitted_documents
 where company_id = :company_id and submission_id = any (:ids::bigint[])
 order by id;

-- name: subjects_lock :many
-- Lock the records of a submission's documents, and those that its notes adjust, which have smaller
-- ids than the notes. The array makes PostgreSQL look up each id. With a join it may read all
-- documents of the company.
select id
  from documents
 where company_id = :company_id
   and id = any (array(
         select unnest(array[n.id, case when n.kind = 'adjustment_note'
                                        then coalesce(n.invoice_id, n.consolidated_invoice_id) end])
           from submitted_documents d
           join documents n on n.company_id = d.company_id and n.id = d.document_id
          where d.company_id = :company_id and n.company_id = :company_id
            and d.submission_id = :submission_id))
 order by id
   for update;

-- name: submitted_documents_move :many
-- Record the portal's results for documents. :changes is an array of {id, expected, next,
-- subject_status} with new values. No row for a document in another state than expected. The status
-- of its record follows. A note that becomes Valid adjusts its invoice, and one that was
-- Valid and is cancelled no longer does. The invoices of a cancelled consolidated invoice are
-- released. A document changes once, also if its own status and that of a note to it change.
-- Returns the documents that changed, with their kind and status; `is_foreign` for one that was
-- cancelled without a request of this service.
with wanted as (
  select *
    from jsonb_to_recordset(:changes::jsonb) as (
           id bigint, expected text[], next text, subject_status text, uuid text, long_id text,
           validation_link text, errors jsonb, submitted_at timestamptz, validated_at timestamptz,
           cancelled_at timestamptz, cancel_reason text, failure jsonb)
), former as (
  select d.id, d.status,
         d.cancellation_requested_at is null and not d.cancel_unclear as is_unrequested
    from submitted_documents d
    join wanted w on w.id = d.id
   where d.company_id = :company_id and d.status = any (w.expected)
   order by d.id
     for update of d
), moved as (
  update submitted_documents d
     set status = w.next,
         uuid = coalesce(w.uuid, d.uuid),
         long_id = coalesce(w.long_id, d.long_id),
         validation_link = coalesce(w.validation_link, d.validation_link),
         errors = coalesce(w.errors, d.errors),
         submitted_at = coalesce(
           w.submitted_at,
           d.submitted_at,
           case when w.next = 'Submitted' then clock_timestamp() end),
         validated_at = coalesce(w.validated_at, d.validated_at),
         cancelled_at = coalesce(
           w.cancelled_at,
           d.cancelled_at,
           case when w.next = 'Cancelled' then clock_timestamp() end),
         cancel_reason = coalesce(w.cancel_reason, d.cancel_reason),
         cancelling_until = case when w.next = 'Cancelled' then null else d.cancelling_until end,
         cancel_sent_by = case when w.next = 'Cancelled' then null else d.cancel_sent_by end,
         cancellation_requested_at = case when w.next = 'Cancelled' then null
                                          else d.cancellation_requested_at end,
         updated_at = clock_timestamp()
    from former
    join wanted w on w.id = former.id
   where d.company_id = :company_id and d.id = former.id
  returning d.id, d.kind, d.document_id, d.status, w.subject_status, w.failure,
            case when d.status in ('NotSent', 'Invalid', 'Rejected')
                 then submission_outcome(d.status, d.errors -> 0, d.updated_at, w.failure) end
              as failed_outcome,
            d.updated_at,
            former.status as before, former.is_unrequested
), adjusting as (
  select coalesce(n.invoice_id, n.consolidated_invoice_id) as id,
         sum((n.payable_amount + n.prepaid_amount)
             * case when n.type = 'DEBIT_NOTE' then 1 else -1 end
             * case when moved.status = 'Valid' then 1
                    when moved.before = 'Valid' then -1
                    else 0 end) as adjusts_by
    from moved
    join documents n on n.id = moved.document_id
   where n.company_id = :company_id and moved.kind = 'adjustment_note'
   group by 1
), members as (
  select i.id
    from documents i
    join moved on moved.status = 'Cancelled' and i.consolidated_invoice_id = moved.document_id
   where i.company_id = :company_id and i.kind = 'invoice'
   order by i.id
     for update of i
), change as (
  select id, m.subject_status, m.failed_outcome, m.updated_at,
         coalesce(a.adjusts_by, 0) as adjusts_by
    from (select document_id as id, subject_status, failed_outcome, updated_at from moved) m
    full join (select id, adjusts_by from adjusting where adjusts_by <> 0) a using (id)
    full join members using (id)
), changed as (
  update document_states d
     set status = coalesce(c.subject_status, d.status),
         failed_outcome = case when c.updated_at is null then d.failed_outcome
                               else c.failed_outcome end,
         outcome_at = coalesce(c.updated_at, d.outcome_at),
         adjusted_by = d.adjusted_by + c.adjusts_by,
         updated_at = clock_timestamp()
    from change c
   where d.company_id = :company_id and d.id = c.id
), freed as (
  update documents i
     set consolidated_invoice_id = null
    from members m
   where i.company_id = :company_id and i.id = m.id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint,
         kind || '.' || case status when 'NotSent' then 'not_sent' else lower(status) end,
         subject_ids(kind, document_id)
           || jsonb_build_object('submitted_document_id', id, 'status', status)
           || coalesce(failure - 'errors', '{}')
    from moved
   order by id
)
select id, kind, status, status = 'Cancelled' and is_unrequested as is_foreign from moved;

-- name: submitted_document_note :exec
-- Record what is new in the portal's details of a document whose status stays the same: those that
-- were missing, and a buyer's request to reject it.
update submitted_documents d
   set long_id = w.long_id,
       validation_link = w.validation_link,
       validated_at = w.validated_at,
       rejection_requested_at = w.rejection_requested_at,
       rejection_reason = w.rejection_reason,
       updated_at = clock_timestamp()
  from (select id,
               coalesce(long_id, :long_id) as long_id,
               coalesce(validation_link, :validation_link) as validation_link,
               coalesce(validated_at, :validated_at::timestamptz) as validated_at,
               coalesce(:rejection_requested_at::timestamptz, rejection_requested_at)
                 as rejection_requested_at,
               coalesce(:rejection_reason, rejection_reason) as rejection_reason
          from submitted_documents
         where company_id = :company_id and id = :id
           for update) w
 where d.company_id = :company_id and d.id = w.id
   and (d.long_id, d.validation_link, d.validated_at, d.rejection_requested_at, d.rejection_reason)
       is distinct from (w.long_id, w.validation_link, w.validated_at, w.rejection_requested_at,
                         w.rejection_reason);

-- name: sighting_insert :exec
-- Record uuids that the portal showed for numbers of submissions. Needs no valid claim, so that
-- every sighting is recorded.
insert into portal_sightings (company_id, submission_id, uuid, number, submission_uid, via)
select :company_id::bigint, submission_id, uuid, number, submission_uid, via
  from unnest(:submission_ids::bigint[], :uuids::text[], :numbers::text[], :submission_uids::text[],
              :via::text[]) as shown (submission_id, uuid, number, submission_uid, via)
    on conflict do nothing;

-- name: sightings_of :many
-- Return sightings of the documents of submissions, also in submissions that they have left. A
-- sighting from a listing is left out if another document has the uuid, because it was recorded
-- before all copies were compared.
select d.submission_id, d.id as submitted_document_id, e.uuid, e.submission_uid, e.via
  from submitted_documents d
  join portal_sightings e
    on e.company_id = d.company_id and e.number = d.number
   and (e.submission_id = d.submission_id or e.submission_id = any (d.earlier_submissions))
 where d.company_id = :company_id
   and e.company_id = :company_id
   and d.submission_id = any (:ids::bigint[])
   and (e.via <> 'search'
        or not exists (select
                         from uuids_recorded(:company_id, array[e.uuid]) r
                        where r.own_submission is distinct from d.submission_id))
 order by e.seen_at;

-- name: submitted_document_duplicate :value
-- Return the uuid of the latest document of this identity that the portal processed within the span
-- before :at. Portal: 14.8
select d.uuid
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id
   and d.number = :number
   and d.document_type = :document_type
   and d.document_version = :document_version
   and d.issued_at = :issued_at and s.tin = :tin and d.uuid is not null
   and coalesce(d.validated_at, d.submitted_at, d.created_at) > :at::timestamptz - :span::interval
 order by d.id desc
 limit 1;

-- name: submitted_document_list :one
-- Return the total of the submitted documents of a company with one of :statuses (separated by
-- commas), any if null, and a page of their records as a JSON array, newest first. Those of deleted
-- documents are left out. The newest of each status are read by an index, and the page is chosen
-- from these.
with page as materialized (
  (select id
     from submitted_documents
    where :statuses::text is null and company_id = :company_id and deleted_at is null
    order by id desc
    limit :per_page::bigint offset :offset::bigint)
   union all
  (select newest.id
     from (select distinct unnest(string_to_array(:statuses, ',')) as status) wanted
    cross join lateral (
          select d.id
            from submitted_documents d
           where d.company_id = :company_id
             and d.status = wanted.status
             and d.deleted_at is null
           order by d.id desc
           limit :per_page + :offset) newest
    order by newest.id desc
    limit :per_page offset :offset)
)
select (select coalesce(sum(live), 0)::bigint
          from record_counts
         where company_id = :company_id
           and list = 'submitted_document'
           and (:statuses is null or status = any (string_to_array(:statuses, ',')))) as total,
       (select coalesce(json_agg((
                 select to_json(r)
                   from submitted_document_records r
                  where r.company_id = :company_id and r.id = page.id) order by page.id desc), '[]')
          from page) as data;

-- name: submitted_document_page :value
-- Return the records of the submitted documents of a document, newest first, as JSON text. Null if
-- the document does not exist.
select (select coalesce(json_agg(r order by r.id desc), '[]')
          from submitted_documents s
          join submitted_document_records r on r.company_id = s.company_id and r.id = s.id
         where s.company_id = :company_id and r.company_id = :company_id
           and s.document_id = :document_id)
  from documents
 where company_id = :company_id and id = :document_id and kind = :kind and deleted_at is null;

-- name: submitted_document_get :one
-- Return the record of one of the submitted documents of a document, or null. There is no row if
-- the document does not exist.
select (select to_json(r)
          from submitted_documents s
          join submitted_document_records r on r.company_id = s.company_id and r.id = s.id
         where s.company_id = :company_id and r.company_id = :company_id and s.id = :id
           and s.document_id = :document_id) as record
  from documents
 where company_id = :company_id and id = :document_id and kind = :kind and deleted_at is null;

-- name: submitted_document_latest :one
-- Return the latest document of an invoice or note that the portal received and did not reject, or
-- may have received, and the database clock.
select id, submission_id, status, submitted_at, cancelling_until, cancel_sent_by,
       clock_timestamp() as now
  from submitted_documents
 where company_id = :company_id and status not in ('Rejected', 'NotSent')
   and document_id = :document_id
 order by id desc
 limit 1;

-- name: cancellation_lacks_verified_tin :value
-- Return true if a document was submitted under the company's current TIN and that TIN is not
-- verified.
select true
  from companies c
  join submitted_documents d on d.company_id = c.id
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where c.id = :company_id and d.company_id = :company_id and s.company_id = :company_id
   and d.id = :id and s.tin = c.tin and c.tin_verified_at is null;

-- name: cancellation_begin :one
-- Record the intent to send a cancellation request, before it is sent, for a document whose invoice
-- or note is locked. The request is sent before the lease ends, or not at all. Returns the fencing
-- token, the clock, and `sent_by` of an earlier request that may still be processed.
with former as (
  select id, cancel_sent_by as sent_by
    from submitted_documents
   where company_id = :company_id and id = :id and status in ('Submitted', 'Valid')
     for update
), begun as (
  update submitted_documents d
     set cancel_fence = d.cancel_fence + 1,
         cancelling_until = clock_timestamp() + :lease::interval,
         cancel_sent_by = clock_timestamp() + :lease,
         cancellation_requested_at = coalesce(d.cancellation_requested_at, clock_timestamp()),
         cancel_reads = 0,
         cancel_reason = :reason,
         updated_at = clock_timestamp()
    from former
   where d.company_id = :company_id and d.id = former.id
  returning d.cancel_fence, d.kind, d.document_id, d.document_hash, former.sent_by
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, changes)
  select :company_id::bigint, 'cancel', document_name(kind, document_id),
         decode(document_hash, 'hex'),
         value_changes(null, jsonb_build_object('reason', :reason::text))
    from begun
)
select cancel_fence, sent_by, clock_timestamp() as now from begun;

-- name: cancellation_wait :value
-- Release the claim while the outcome is unknown, and look again after :delay. :sent_by belongs to
-- an earlier request; with :is_unclear another one was sent just now. No row if the claim is lost,
-- or the document is cancelled.
update submitted_documents
   set cancelling_until = clock_timestamp() + :delay::interval,
       cancel_sent_by = case when :is_unclear::boolean then clock_timestamp()
                             else :sent_by::timestamptz end,
       cancel_reads = case when :is_unclear then 1 else cancel_reads + 1 end
 where company_id = :company_id and id = :id and cancel_fence = :fence and status <> 'Cancelled'
returning pg_notify('submission_moved', format('%s:%s', company_id, submission_id)) is not null;

-- name: cancellation_end :value
-- End a cancellation without effect. With :is_unclear a request was sent that had no trustworthy
-- response. No row if the claim is lost, or the document is cancelled.
update submitted_documents
   set cancelling_until = null, cancel_sent_by = null, cancellation_requested_at = null,
       cancel_unclear = cancel_unclear or :is_unclear::boolean, cancel_reason = null,
       updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and cancel_fence = :fence and status <> 'Cancelled'
returning pg_notify('submission_moved', format('%s:%s', company_id, submission_id)) is not null;

-- name: cancellation_get :one
select d.submission_id, d.uuid, d.cancel_reason, d.cancel_sent_by, d.cancel_reads, s.tin,
       clock_timestamp() as now
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id and d.id = :id;

-- name: pause_set :exec
-- Record that the portal asked a client id to wait. Belongs to no company, because all share the
-- client id.
insert into portal_buckets as b (client_id, operation, taxpayer, paused_until)
values (:client_id, :operation, '', clock_timestamp() + :pause::interval)
    on conflict (client_id, operation, taxpayer) do update
   set paused_until = greatest(b.paused_until, excluded.paused_until);

-- name: pause_left :value
-- Return how long the operation must still wait. Null: it need not wait.
select paused_until - clock_timestamp()
  from portal_buckets
 where client_id = :client_id and operation = :operation and taxpayer = ''
   and paused_until > clock_timestamp();

-- name: notify :exec
select pg_notify(:channel, :payload);
