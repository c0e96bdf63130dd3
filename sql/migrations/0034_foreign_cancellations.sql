-- A document that is cancelled at the portal by somebody else is reported where a poll finds it, not by the sweep alone. For
-- that it has to be known, after a cancellation has ended here, whether the portal may have processed its request.

-- cancel_unclear: set when a cancellation ends although one of its requests had no trustworthy answer.
alter table submitted_documents add column cancel_unclear boolean not null default false;
comment on column submitted_documents.cancel_unclear is
  'Whether a request to cancel was sent that had no trustworthy answer, and has settled without effect. If the document is '
  'cancelled after all, that request may have done it.';

-- Of earlier cancellations it is not known how they ended. The owner of the table may be bound by its forced policy, under
-- which it has no rows.
alter table submitted_documents no force row level security;
update submitted_documents set cancel_unclear = true where cancel_fence > 0 and status in ('Submitted', 'Valid');
alter table submitted_documents force row level security;
