create or replace function held_companies() returns bigint[]
  stable language sql
  begin atomic
    select coalesce(array_agg(m.company_id order by m.company_id), '{}')
      from company_moves m
     where m.state <> 'Draining';
  end;
comment on function held_companies is
  'Ids of the companies whose rows cannot be changed because of a move, in ascending order.';
