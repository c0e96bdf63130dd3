-- The documents of a company that can still be cancelled, those whose 72 hours end first at the
-- top. `refused` says why the service would not cancel one now.
--
--   psql "$DATABASE_URL" -v company_id=1 -f sql/inspect/cancellable.sql

select d.number,
       document_name(d.kind, d.document_id) as document,
       d.uuid,
       d.submitted_at,
       d.submitted_at + interval '72 hours' as until,
       date_trunc('minute', d.submitted_at + interval '72 hours' - clock_timestamp()) as time_left,
       case when d.cancellation_requested_at is not null then 'a cancellation is in progress'
            when exists (select
                           from documents n
                           join document_states s
                             on s.company_id = n.company_id and s.id = n.id
                          where n.company_id = d.company_id
                            and n.kind = 'adjustment_note'
                            and d.document_id in (n.invoice_id, n.consolidated_invoice_id)
                            and n.deleted_at is null
                            and s.status in ('Submitting', 'Submitted', 'Valid'))
            then 'it has notes' end as refused
  from submitted_documents d
 where d.company_id = :company_id
   and d.status = 'Valid'
   and d.submitted_at >= statement_timestamp() - interval '72 hours'
 order by d.submitted_at;
