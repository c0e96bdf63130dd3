create or replace function sending_companies() returns table (company_id bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select c.id
      from public.companies c
     where c.tin <> '' and c.tin_verified_at is not null
        or exists (select
                     from public.submissions s
                    where s.company_id = c.id and s.last_sent_at is not null)
     order by c.id;
  end;
call run_across_companies('sending_companies');
comment on function sending_companies is
  'Ids of the companies that can send, because their TIN is verified, or have sent, in ascending '
  'order.';
