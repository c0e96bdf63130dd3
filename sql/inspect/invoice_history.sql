-- Everything that is known about one invoice, in order: events, sends and sightings.
--
--   psql "$DATABASE_URL" -v company_id=1 -v id=42 -f sql/inspect/invoice_history.sql
--
-- Run it as a member of einvoice_reader or as a superuser. Row-level security hides all rows from
-- the role of the service.

select at, what, detail
  from (select created_at as at,
               type as what,
               nullif((data - 'invoice_id')::text, '{}') as detail
          from events
         where company_id = :company_id and data -> 'invoice_id' = to_jsonb(:id::bigint)
        union all
        select s.first_sent_at,
               'first sent',
               format('submission %s, %s sends, now %s', s.id, s.sends, s.state)
          from submitted_documents d
          join submissions s on s.company_id = d.company_id
                            and (s.id = d.submission_id or s.id = any (d.earlier_submissions))
         where d.company_id = :company_id and d.invoice_id = :id and s.sends > 0
        union all
        select e.seen_at,
               'seen at the portal',
               format('submission %s, uuid %s, by %s', e.submission_id, e.uuid, e.via)
          from submitted_documents d
          join portal_sightings e
            on e.company_id = d.company_id and e.number = d.number
           and (e.submission_id = d.submission_id or e.submission_id = any (d.earlier_submissions))
         where d.company_id = :company_id and d.invoice_id = :id) history
 order by at;
