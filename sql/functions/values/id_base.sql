create or replace function id_base() returns bigint
  stable language sql
  begin atomic
    select coalesce(max(c.id_base), 0) from cells c;
  end;
comment on function id_base is
  'Number that is added to the ids of new companies, accounts and people: 0 without cells.';
