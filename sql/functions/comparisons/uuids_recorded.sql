create or replace function uuids_recorded(company bigint, uuids text[])
  returns table (uuid text, own_submission bigint)
  stable language sql
  begin atomic
    select d.uuid,
           case d.company_id when company then d.submission_id end
      from submitted_documents d
     where d.uuid = any (uuids);
  end;
call run_across_companies('uuids_recorded');
comment on function uuids_recorded is
  'Those of some uuids that submitted documents have, with the submission if it is the company''s '
  'own, else null.';
