-- Transaction ids belong to a cluster. In another one the order of a company's events is kept by
-- small numbers in their place: a number is used as long as the ids of the events ascend, so that
-- number and id together have the same order as transaction and id.
create or replace function event_places(company bigint)
  returns table (id bigint, transaction_id xid8, place xid8)
  stable language sql
  begin atomic
    select e.id,
           e.transaction_id,
           (count(*) filter (where e.former > e.id)
              over (order by e.transaction_id, e.id))::text::xid8
      from (select v.id, v.transaction_id,
                   lag(v.id) over (order by v.transaction_id, v.id) as former
              from public.events v
             where v.company_id = company) e;
  end;
comment on function event_places is
  'The events of a company with the number that takes the place of their transaction in another '
  'cluster.';
