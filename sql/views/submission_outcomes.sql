create or replace view submission_outcomes with (security_invoker = true) as
select d.id,
       d.company_id,
       d.document_id,
       json_build_object(
         'status', d.status,
         'code', coalesce(d.errors -> 0, s.last_error) ->> 'code',
         'message', coalesce(d.errors -> 0, s.last_error) ->> 'message',
         'at', instant(d.updated_at)) as outcome
  from submitted_documents d
  left join submissions s
         on s.company_id = d.company_id and s.id = d.submission_id and d.status = 'Submitting';
grant select on submission_outcomes to einvoice_service, einvoice_reader;
call describe('submission_outcomes', '
  Submitted documents with their outcome as the records of their documents show it.

  outcome: Status, the code and the message of the first error, and the time of the latest change.
    The error of a submission without an outcome is the last transient one.
', 'submitted_documents');
