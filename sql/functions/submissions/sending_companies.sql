create or replace function sending_companies() returns table (company_id bigint)
  stable language sql
  begin atomic
    select c.id
      from companies c
     where c.tin <> '' and c.tin_verified_at is not null
        or exists (select
                     from submissions s
                    where s.company_id = c.id and s.last_sent_at is not null)
     order by c.id;
  end;
call run_across_companies('sending_companies');
comment on function sending_companies is
  'Ids of the companies that can send, because their TIN is verified, or have sent, in ascending '
  'order.';
