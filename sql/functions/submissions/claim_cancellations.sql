create or replace function claim_cancellations(lease interval, most int)
  returns table (company_id bigint, id bigint, cancel_fence bigint)
  volatile language sql
  begin atomic
    with due as (
      select d.company_id, d.id
        from submitted_documents d
       where d.cancelling_until < clock_timestamp()
       order by d.cancelling_until
         for update skip locked
       limit most
    )
    update submitted_documents d
       set cancel_fence = d.cancel_fence + 1, cancelling_until = clock_timestamp() + lease
      from due
     where d.company_id = due.company_id and d.id = due.id
    returning d.company_id, d.id, d.cancel_fence;
  end;
call run_across_companies('claim_cancellations');
comment on function claim_cancellations is
  'Claim up to `most` cancellations whose process gave no result in time, of any company, with a '
  'new fencing token.';
