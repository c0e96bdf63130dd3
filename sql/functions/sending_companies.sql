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
alter function sending_companies owner to einvoice_across;
revoke all on function sending_companies from public;
grant execute on function sending_companies to einvoice_service;
comment on function sending_companies is
  'Ids of the companies that can send, because their TIN is verified, or have sent, in ascending '
  'order.';
