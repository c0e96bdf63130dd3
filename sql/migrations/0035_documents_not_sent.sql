-- Submissions of which nothing reached the portal have a status of their own, and are the last
-- submission of their record even if no document was stored for them. Earlier versions do not know
-- the status, so that none of them may run after this migration.

alter table invoices add column not_sent json;
alter table adjustment_notes add column not_sent json;
alter table consolidated_invoices add column not_sent json;
comment on column invoices.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';
comment on column adjustment_notes.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';
comment on column consolidated_invoices.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';

-- For the overview.
create index invoices_not_sent on invoices (company_id, id) where not_sent is not null;
create index adjustment_notes_not_sent on adjustment_notes (company_id, id)
  where not_sent is not null;
create index consolidated_invoices_not_sent on consolidated_invoices (company_id, id)
  where not_sent is not null;

alter table submitted_documents drop constraint submitted_documents_status;
alter table submitted_documents add constraint submitted_documents_status check
  (status in ('Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled', 'Rejected', 'NotSent'));
alter table submitted_documents drop constraint submitted_documents_known_by_uuid;
alter table submitted_documents add constraint submitted_documents_known_by_uuid check
  (status in ('Submitting', 'Rejected', 'NotSent') or uuid is not null);
comment on column submitted_documents.status is
  'Submitting, Submitted, Valid, Invalid, Cancelled, Rejected or NotSent.';

-- Documents of earlier versions that were Rejected although nothing reached the portal. The owner
-- of the tables does not see rows of companies otherwise.
alter table submissions no force row level security;
alter table submitted_documents no force row level security;
alter table invoices no force row level security;
alter table adjustment_notes no force row level security;
alter table consolidated_invoices no force row level security;
alter table record_counts no force row level security;

update submitted_documents d
   set status = 'NotSent'
  from submissions s
 where s.company_id = d.company_id
   and s.id = d.submission_id
   and s.state = 'NotReceived'
   and d.status = 'Rejected';

create procedure pg_temp.note_not_sent(records regclass, key text) language plpgsql as $$
begin
  execute format($f$
    update %1$s r
       set not_sent = json_build_object(
             'status', d.status,
             'code', case d.errors #>> '{0,code}'
                       when 'PortalCredentials' then 'portal_credentials_refused'
                       when 'NotReceived' then 'not_received'
                       else 'portal_unavailable' end,
             'message', d.errors #> '{0,message}',
             'at', to_char(d.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"'),
             'retryable', true,
             'errors', d.errors)
      from submitted_documents d
     where d.company_id = r.company_id
       and d.%2$s = r.id
       and d.status = 'NotSent'
       and not exists (select
                         from submitted_documents later
                        where later.company_id = d.company_id
                          and later.%2$s = d.%2$s
                          and later.id > d.id)
    $f$, records, key);
end $$;
call pg_temp.note_not_sent('invoices', 'invoice_id');
call pg_temp.note_not_sent('adjustment_notes', 'adjustment_note_id');
call pg_temp.note_not_sent('consolidated_invoices', 'consolidated_invoice_id');

alter table submissions force row level security;
alter table submitted_documents force row level security;
alter table invoices force row level security;
alter table adjustment_notes force row level security;
alter table consolidated_invoices force row level security;
alter table record_counts force row level security;
