-- What was, is or will be sent to the portal. Nothing here is ever deleted.

-- One call to the portal: its frozen bytes and what became of it.
create table submissions (
  company_id     bigint not null references companies,
  id             bigint generated always as identity,
  attempt_key    uuid not null,       -- made before BEGIN; finds the row again after a lost COMMIT answer
  tin            text not null,       -- the taxpayer on whose behalf it is sent
  body           bytea not null,      -- the exact bytes of every send
  state          text not null default 'Queued',
  on_absence        text not null,       -- what the caller was told, or will be if we die: decides what absence means
  fence          bigint not null default 0,  -- grows with every claim; a change names the fence it was claimed with
  lease_until    timestamptz,
  not_before     timestamptz not null default clock_timestamp(),
  claims         int not null default 0,  -- claims since the last result
  sends          int not null default 0,
  looks          int not null default 0,  -- polls, or looks for an uncertain one, since the last state
  absence_confirmations  int not null default 0,
  absence_confirmed_at      timestamptz,         -- of the latest proof
  first_sent_at  timestamptz,
  last_sent_at   timestamptz,
  submission_uid text,
  last_error     jsonb,
  created_at     timestamptz not null default clock_timestamp(),
  updated_at     timestamptz not null default clock_timestamp(),
  primary key (company_id, id),
  unique (company_id, attempt_key),
  constraint submissions_state check (state in
    ('Queued', 'Sending', 'Uncertain', 'Accepted', 'Finished', 'Refused', 'NotReceived', 'NeedsPerson')),
  constraint submissions_on_absence check (on_absence in ('release', 'retry')),
  constraint submissions_sent_before_known check (state in ('Queued', 'NotReceived', 'NeedsPerson') or last_sent_at is not null)
);
create index submissions_due on submissions (not_before) where state in ('Queued', 'Sending', 'Uncertain', 'Accepted');
create index submissions_uncertain on submissions (company_id) where state = 'Uncertain';
call keep_companies_apart('submissions');
grant select, insert, update on submissions to einvoice_service;

-- One document of a call.
create table submitted_documents (
  company_id              bigint not null references companies,
  id                      bigint generated always as identity,
  submission_id           bigint not null,
  invoice_id              bigint,
  adjustment_note_id      bigint,
  consolidated_invoice_id bigint,
  number                  text not null,         -- with document_type and issued_at: by what the portal lists it
  document_type           text not null,
  document_version        text not null,
  issued_at               timestamptz not null,
  document_hash           text not null,
  status                  text not null default 'Submitting',
  uuid                    text,
  long_id                 text,
  validation_link         text,
  errors                  jsonb not null default '[]',
  submitted_at            timestamptz,
  validated_at            timestamptz,
  cancelled_at            timestamptz,
  cancel_reason           text,
  cancel_fence            bigint not null default 0,
  cancelling_until        timestamptz,           -- a cancellation is under way: nobody else sends one before this
  rejection_requested_at  timestamptz,
  rejection_reason        text,
  created_at              timestamptz not null default clock_timestamp(),
  updated_at              timestamptz not null default clock_timestamp(),
  primary key (company_id, id),
  foreign key (company_id, submission_id) references submissions (company_id, id),
  foreign key (company_id, invoice_id) references invoices (company_id, id),
  foreign key (company_id, adjustment_note_id) references adjustment_notes (company_id, id),
  constraint submitted_documents_one_subject check (num_nonnulls(invoice_id, adjustment_note_id, consolidated_invoice_id) = 1),
  constraint submitted_documents_status check (status in ('Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled', 'Rejected')),
  constraint submitted_documents_known_by_uuid check (status in ('Submitting', 'Rejected') or uuid is not null)
);
create unique index submitted_documents_one_live_per_invoice on submitted_documents (company_id, invoice_id)
  where status in ('Submitting', 'Submitted', 'Valid');
create unique index submitted_documents_one_live_per_note on submitted_documents (company_id, adjustment_note_id)
  where status in ('Submitting', 'Submitted', 'Valid');
create unique index submitted_documents_uuid_once on submitted_documents (company_id, uuid);
create index submitted_documents_by_invoice on submitted_documents (company_id, invoice_id, id);
create index submitted_documents_by_submission on submitted_documents (company_id, submission_id);
create index submitted_documents_cancelling on submitted_documents (cancelling_until) where cancelling_until is not null;
call keep_companies_apart('submitted_documents');
grant select, insert, update on submitted_documents to einvoice_service;

-- Every uuid the portal ever showed for a call of ours, written without asking any fence.
-- Two uuids for one document of a call are a duplicate legal document.
create table portal_sightings (
  company_id    bigint not null references companies,
  submission_id bigint not null,
  uuid          text not null,
  number        text not null,
  submission_uid text,
  via           text not null,
  seen_at       timestamptz not null default clock_timestamp(),
  primary key (company_id, submission_id, uuid),
  foreign key (company_id, submission_id) references submissions (company_id, id),
  constraint portal_sightings_via check (via in ('submit', 'damaged answer', 'search'))
);
call keep_companies_apart('portal_sightings');
grant select, insert on portal_sightings to einvoice_service;

-- Until when a client id of ours must not call an operation of the portal. Shared by all companies and processes.
create table portal_pauses (
  client_id text not null,
  operation text not null,
  until     timestamptz not null,
  primary key (client_id, operation)
);
grant select, insert, update on portal_pauses to einvoice_service;

-- The work that is due, whatever company it is of: claims it for `lease` and gives it a new fence.
create policy across_companies on submissions to einvoice_across using (true);
create policy across_companies on submitted_documents to einvoice_across using (true);
grant select, update on submissions, submitted_documents to einvoice_across;

create function claim_submissions(lease interval, most int)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with due as (
      select s.company_id, s.id
        from public.submissions s
       where s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by s.not_before
         for update skip locked
       limit most
    )
    update public.submissions s
       set fence = s.fence + 1, claims = s.claims + 1, lease_until = clock_timestamp() + lease
      from due
     where s.company_id = due.company_id and s.id = due.id
    returning s.company_id, s.id, s.fence, s.state, s.claims;
  end;
alter function claim_submissions(interval, int) owner to einvoice_across;
revoke all on function claim_submissions(interval, int) from public;
grant execute on function claim_submissions(interval, int) to einvoice_service;

-- Cancellations whose sender gave no result in time.
create function claim_cancellations(lease interval, most int)
  returns table (company_id bigint, id bigint, cancel_fence bigint)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with due as (
      select d.company_id, d.id
        from public.submitted_documents d
       where d.cancelling_until < clock_timestamp()
       order by d.cancelling_until
         for update skip locked
       limit most
    )
    update public.submitted_documents d
       set cancel_fence = d.cancel_fence + 1, cancelling_until = clock_timestamp() + lease
      from due
     where d.company_id = due.company_id and d.id = due.id
    returning d.company_id, d.id, d.cancel_fence;
  end;
alter function claim_cancellations(interval, int) owner to einvoice_across;
revoke all on function claim_cancellations(interval, int) from public;
grant execute on function claim_cancellations(interval, int) to einvoice_service;

-- In how long the next submission or cancellation falls due; no row when nothing waits.
create function next_due() returns interval
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select min(at) - clock_timestamp()
      from (select min(greatest(s.not_before, s.lease_until)) as at
              from public.submissions s
             where s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
            union all
            select min(d.cancelling_until) from public.submitted_documents d where d.cancelling_until is not null) due;
  end;
alter function next_due() owner to einvoice_across;
revoke all on function next_due() from public;
grant execute on function next_due() to einvoice_service;
