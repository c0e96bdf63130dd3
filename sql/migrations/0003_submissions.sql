-- Submissions to the portal, their documents, and everything that decides what is sent and when.
-- Rows of submissions, documents and sightings are never deleted.

create table submissions (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  attempt_key uuid not null,
  tin text not null,
  request_sha256 bytea,
  state text not null default 'Queued',
  on_absence text not null,
  fence bigint not null default 0,
  lease_until timestamptz,
  not_before timestamptz not null default clock_timestamp(),
  claims int not null default 0,
  sends int not null default 0,
  reads int not null default 0,
  absence_confirmations int not null default 0,
  absence_confirmed_at timestamptz,
  first_sent_at timestamptz,
  last_sent_at timestamptz,
  client_id text,
  submission_uid text,
  last_error jsonb,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  merged_into bigint,
  split_from bigint,
  possibly_received boolean not null default false,
  has_outcome boolean not null default false,
  has_repeated_claims boolean not null generated always as (claims > 1) stored,
  primary key (company_id, id),
  unique (company_id, attempt_key),
  constraint submissions_merged_into foreign key (company_id, merged_into)
    references submissions (company_id, id),
  constraint submissions_split_from foreign key (company_id, split_from)
    references submissions (company_id, id),
  constraint submissions_state check
    (state in ('Queued', 'Merged', 'Sending', 'Uncertain', 'Accepted', 'Finished', 'Split',
               'Refused', 'NotReceived', 'NeedsPerson')),
  constraint submissions_on_absence check (on_absence in ('release', 'retry')),
  constraint submissions_sent_before_known check
    (state in ('Queued', 'Merged', 'NotReceived', 'NeedsPerson') or last_sent_at is not null),
  constraint submissions_merged_unsent check
    ((state = 'Merged') = (merged_into is not null)
     and (state <> 'Merged' or first_sent_at is null))
);
-- Submissions that were promised and never sent, in the order of their creation. They may still be
-- merged.
create index submissions_unsent on submissions (company_id, id)
  where state = 'Queued' and on_absence = 'retry' and first_sent_at is null;
create index submissions_claimable on submissions (not_before)
  where state = 'Sending'
     or (state = 'Queued' and (on_absence <> 'retry' or first_sent_at is not null));
create index submissions_uncertain on submissions (company_id, not_before)
  where state = 'Uncertain';
create index submissions_polls on submissions (not_before)
  where state = 'Accepted' and not has_outcome;
create index submissions_polls_of_company on submissions (company_id, not_before)
  where state = 'Accepted' and not has_outcome;
create index submissions_rechecks on submissions (not_before)
  where state = 'Accepted' and has_outcome;
create index submissions_turn on submissions (company_id, last_sent_at)
  where last_sent_at is not null;
create index submissions_needing_a_person on submissions (company_id, id)
  where state = 'NeedsPerson';
create index submissions_by_tin on submissions (tin, company_id);
-- An index whose predicate names `claims` would prevent HOT updates for each claim, because
-- PostgreSQL skips the indexes of a table only while no column changes that one of them names.
-- `has_repeated_claims` changes in the exceptional case only.
create index submissions_repeated_claims on submissions (company_id)
  where has_repeated_claims and state in ('Queued', 'Sending', 'Uncertain', 'Accepted');
comment on index submissions_repeated_claims is
  'Submissions whose handling began several times without a result.';
-- `last_error` changes together with `state` or `not_before`, which other indexes name, so this
-- index prevents no HOT update.
create index submissions_kept_waiting on submissions (created_at)
  where state = 'Queued' and last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart');
comment on index submissions_kept_waiting is
  'Submissions that wait because the portal could not be reached, or because its clock and the '
  'database clock differ.';
-- A TIN belongs to few companies, and the planner multiplies the selectivities of columns that it
-- takes for independent. Without this index and these statistics it reads all submissions of the
-- TIN.
create index submissions_uncertain_of_tin on submissions (company_id, tin, id)
  where state = 'Uncertain';
create statistics submissions_company_and_tin (dependencies) on company_id, tin from submissions;
call keep_apart('submissions', 'select, insert', across => 'select, update');
-- The service cannot change the promise of a submission.
grant update (
  state, fence, lease_until, not_before, claims, sends, reads, absence_confirmations,
      absence_confirmed_at,
  first_sent_at, last_sent_at, client_id, submission_uid, last_error, merged_into, updated_at,
      possibly_received, request_sha256,
  has_outcome
) on submissions to einvoice_service;
call describe('submissions', '
  Submissions: one request to the portal each, with its outcome. Never deleted.

  attempt_key: Chosen before the insert. Finds the row again after the response to a commit was
    lost.
  tin: Taxpayer in whose name it is sent.
  request_sha256: SHA-256 of the TIN and the bytes of the first request. A request that differs is
    not sent. Null: never sent.
  state: State of the submission''s state machine.
  on_absence: What follows if the portal does not have it. release: its documents go back to
    Draft, because the client was informed of a failure. retry: it is sent again.
  fence: Fencing token. Grows with each claim; a write names the token of its claim.
  lease_until: When the claim ends, unless it is renewed. Null: not claimed.
  not_before: When it is due for its next step.
  claims: How often work on this submission began since its last result. Grows when a process dies
    or fails, not while it waits for a listing.
  sends: How often it was sent.
  reads: Polls, or reads for an unknown outcome, since the last change of state.
  absence_confirmations: Confirmations that the portal does not have it.
  absence_confirmed_at: When the latest absence confirmation was made. Null: none.
  first_sent_at: When it was first sent. Null: never.
  last_sent_at: When it was last sent. Null: never.
  client_id: Client of the portal that sent it last. A listing of another client does not prove its
    absence. Null: never sent.
  submission_uid: The portal''s id of the submission. Null: not known.
  last_error: Latest error as {code, message, ...}. Null: none.
  updated_at: When its state last changed.
  merged_into: Submission that its documents moved to before anything was sent. Null: not merged.
  split_from: Submission that the portal rejected as a whole or accepted in part, and whose
    documents it sends again. Null: not split.
  possibly_received: Whether it was sent before, seemed absent and is sent again. A rejection then
    does not prove that the first one is absent.
  has_outcome: Whether an Accepted submission has no document left with an unknown outcome. It is
    polled for later changes only.
  has_repeated_claims: Whether claims is greater than 1.
');

create table submitted_documents (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  submission_id bigint not null,
  kind text not null,
  document_id bigint not null,
  number text not null,
  document_type text not null,
  document_version text not null,
  issued_at timestamptz not null,
  document_hash text not null,
  status text not null default 'Submitting',
  uuid text,
  long_id text,
  validation_link text,
  errors jsonb not null default '[]',
  submitted_at timestamptz,
  validated_at timestamptz,
  cancelled_at timestamptz,
  cancel_reason text,
  cancel_fence bigint not null default 0,
  cancelling_until timestamptz,
  rejection_requested_at timestamptz,
  rejection_reason text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  earlier_submissions bigint[] not null default '{}',
  cancellation_requested_at timestamptz,
  cancel_sent_by timestamptz,
  cancel_reads int not null default 0,
  cancel_unclear boolean not null default false,
  deleted_at timestamptz,
  primary key (company_id, id),
  foreign key (company_id, submission_id) references submissions (company_id, id),
  foreign key (company_id, document_id) references documents (company_id, id),
  constraint submitted_documents_kind check
    (kind in ('invoice', 'adjustment_note', 'consolidated_invoice')),
  constraint submitted_documents_status check
  (status in ('Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled', 'Rejected', 'NotSent')),
  constraint submitted_documents_known_by_uuid check
  (status in ('Submitting', 'Rejected', 'NotSent') or uuid is not null)
);
create unique index submitted_documents_one_live_per_document
  on submitted_documents (company_id, document_id)
  where status in ('Submitting', 'Submitted', 'Valid');
-- The portal chooses uuids and clients do not, so uniqueness across companies discloses nothing.
create unique index submitted_documents_uuid_once on submitted_documents (uuid);
comment on index submitted_documents_uuid_once is
  'A uuid of the portal belongs to one submitted document of all companies.';
-- Responses of the portal name documents by number.
create unique index submitted_documents_number_once_a_call
  on submitted_documents (company_id, submission_id, number);
create index submitted_documents_by_number on submitted_documents (company_id, number);
create index submitted_documents_by_document on submitted_documents (company_id, document_id, id);
create index submitted_documents_cancelling on submitted_documents (cancelling_until)
  where cancelling_until is not null;
-- Documents that prevent a change of the company's TIN.
create index submitted_documents_undecided on submitted_documents (company_id)
  where status in ('Submitting', 'Submitted');
call keep_apart('submitted_documents', 'select, insert, update', across => 'select, update');
-- For the overview: documents that can be cancelled.
create index submitted_documents_by_submission on submitted_documents (company_id, submitted_at)
  where status = 'Valid';
-- Lists of submitted documents by status.
create index submitted_documents_by_status on submitted_documents (company_id, status, id);
create trigger counted_inserted after insert on submitted_documents for each row
  execute function count_record('submitted_document');
create trigger counted_changed after update on submitted_documents for each row
  when ((old.status, old.deleted_at) is distinct from (new.status, new.deleted_at))
  execute function count_record('submitted_document');
call describe('submitted_documents', '
  Documents of submissions. Never deleted.

  submission_id: Submission that contains the document now.
  kind: Kind of the document.
  document_id: Document that it is a version of.
  number: Full number. The portal lists it with document_type and issued_at.
  document_type: The portal''s code of the type, such as 01.
  document_version: The portal''s version of the document format.
  issued_at: Time of issue in the document, to the second.
  document_hash: SHA-256 of the document''s bytes, in hexadecimal.
  status: Submitting, Submitted, Valid, Invalid, Cancelled, Rejected or NotSent.
  uuid: The portal''s id of the document. Null: not known.
  long_id: The portal''s long id, part of the validation link. Null: not valid yet.
  validation_link: Public page of the valid document. Null: not valid yet.
  errors: Errors of the portal, as an array for the API.
  submitted_at: When the portal received it. Null: not known.
  validated_at: When the portal validated it. Null: not yet.
  cancelled_at: When it was cancelled. Null: it was not.
  cancel_reason: Reason of the cancellation. Null: none was requested.
  cancel_fence: Fencing token of the cancellation. Grows with each claim on it.
  cancelling_until: End of the claim on a cancellation, or time of its next look. Null: no
    cancellation is in progress.
  rejection_requested_at: When the buyer asked for a rejection. Null: never.
  rejection_reason: Reason that the buyer gave. Null: none.
  earlier_submissions: Submissions with which the document was sent and which it has left.
  cancellation_requested_at: When the cancellation in progress was first requested. Null: none is
    in progress.
  cancel_sent_by: Latest time at which a cancellation request was sent that may still be
    processed. May be in the future. Null: none.
  cancel_reads: How often the document was looked at since the latest cancellation request.
  cancel_unclear: Whether a cancellation request without a trustworthy response ended without
    effect. If the document is cancelled after all, that request may be the cause.
  deleted_at: When its document was deleted. Null: it is not. Written by triggers.
');

-- A table of its own, so that a change of a status does not write the bytes again. PostgreSQL
-- compresses them.
create table submitted_contents (
  company_id bigint not null,
  submitted_document_id bigint not null,
  content bytea not null,
  primary key (company_id, submitted_document_id),
  foreign key (company_id, submitted_document_id) references submitted_documents (company_id, id)
);
call keep_apart('submitted_contents', 'select, insert');
call describe('submitted_contents', '
  Bytes of submitted documents. Never changed: each request contains the same.

  submitted_document_id: Submitted document.
  content: Exact bytes of the document, which a request contains in Base64.
');

-- Sightings are written without a fencing token, so that no process can suppress one. Two uuids for
-- one document of a submission mean a duplicate legal document.
create table portal_sightings (
  company_id bigint not null references companies,
  submission_id bigint not null,
  uuid text not null,
  number text not null,
  submission_uid text,
  via text not null,
  seen_at timestamptz not null default clock_timestamp(),
  primary key (company_id, submission_id, uuid, via),
  foreign key (company_id, submission_id) references submissions (company_id, id),
  constraint portal_sightings_via check
    (via in ('submit', 'damaged answer', 'search', 'details', 'unproven', 'listed'))
);
create index portal_sightings_by_uuid on portal_sightings (uuid);
call keep_apart('portal_sightings', 'select, insert', across => 'select');
call describe('portal_sightings', '
  Sightings: each uuid that the portal showed for a submission, once for each way of seeing it.
  Never changed.

  submission_id: Submission that the uuid was shown for.
  uuid: The portal''s id of the document.
  number: Number of the document that was shown.
  submission_uid: The portal''s id of the submission. Null: not shown.
  via: submit: named in the receipt. search: listed and proven. damaged answer: in a damaged
    receipt. details: named by a person. unproven, listed: listed without evidence. Only submit
    and search prove identity.
  seen_at: When it was seen.
');

create table comparisons (
  company_id bigint primary key references companies,
  fence bigint not null default 0,
  lease_until timestamptz,
  is_complete boolean not null default false,
  compared_at timestamptz,
  listed int not null default 0,
  failures int not null default 0,
  retry_at timestamptz
);
call keep_apart('comparisons', 'select, insert, update', across => 'select, insert, update');
call describe('comparisons', '
  The latest complete comparison of each company with the portal, and the claim on the next one.
  One process at a time compares a company.

  fence: Fencing token. Grows with each claim; a process with a smaller token has lost its claim.
  lease_until: When the claim ends unless it is renewed. Null: not claimed.
  is_complete: Whether the latest claim is for a complete comparison, and not for unknown outcomes
    alone.
  compared_at: When the listing of the latest complete comparison was requested. Null: never.
  listed: Documents that the portal listed in the latest complete comparison.
  failures: Comparisons that have failed since the latest complete one.
  retry_at: After a failure, when the next complete comparison may begin. Null: at any time.
');

-- The facts of a finding never change; only its resolution is added.
create table findings (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  kind text not null,
  tin text not null,
  number text not null,
  document_type text,
  uuid text not null,
  other_uuid text,
  submitted_document_id bigint,
  received_at timestamptz,
  found_at timestamptz not null default clock_timestamp(),
  resolved_at timestamptz,
  resolved_by text,
  note text,
  cancelled_at timestamptz,
  reason text,
  primary key (company_id, id),
  foreign key (company_id, submitted_document_id) references submitted_documents (company_id, id),
  constraint findings_kind check
    (kind in ('duplicate', 'orphan', 'missing', 'adoptable', 'cancelled_elsewhere',
              'shared_uuid')),
  constraint findings_resolved check
    ((resolved_at is null) = (resolved_by is null)
     and (resolved_by = 'person') = (note is not null)),
  constraint findings_resolved_by check (resolved_by in ('person', 'comparison'))
);
create unique index findings_open on findings (company_id, kind, uuid)
  where resolved_at is null;
call keep_apart(
  'findings',
  'select, update (resolved_at, resolved_by, note), '
  'insert (company_id, kind, tin, number, document_type, uuid, other_uuid, submitted_document_id, '
  'received_at, cancelled_at, reason)',
  across => 'select');
call describe('findings', '
  Differences between the portal and the service, and how each was resolved. Written by the
  comparisons, polls and people.

  kind: duplicate, orphan: unexpected documents at the portal. missing: not listed by the portal.
    adoptable: may be a document that needs a person. cancelled_elsewhere: cancelled by others.
    shared_uuid: another company has the uuid.
  tin: Taxpayer that was compared.
  number: Number of the document.
  document_type: The portal''s code of the document type. Null: cannot be read.
  uuid: The portal''s id of the document; of a duplicate, the one to cancel.
  other_uuid: Uuid of the earlier document. Null unless it is a duplicate.
  submitted_document_id: Submitted document that is affected. Null for an orphan.
  received_at: When the portal received the document. Null: not known.
  found_at: When the difference was found.
  resolved_at: When it was resolved. Null: open.
  resolved_by: person or comparison. Null: open.
  note: What the person wrote. Null unless a person resolved it.
  cancelled_at: When the portal says that the document was cancelled. Null unless
    cancelled_elsewhere.
  reason: Reason of the cancellation according to the portal. Null unless cancelled_elsewhere.
');

create table sending_holds (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  reason text not null,
  since timestamptz not null default clock_timestamp(),
  released_at timestamptz,
  known_until timestamptz,
  primary key (company_id, id)
);
create unique index sending_holds_one_a_company on sending_holds (company_id)
  where released_at is null;
call keep_apart(
  'sending_holds', 'select, update (released_at)', across => 'select, insert, update');
call describe('sending_holds', '
  Holds on sending. While a company has one that is not released, nothing is sent for it.

  reason: Why sending is held, for people.
  since: When the hold began.
  released_at: When it was released. Null: it holds.
  known_until: A time before which the database has recorded everything that was sent. Null: not
    known.
');
