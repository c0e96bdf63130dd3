create or replace function portal_odd_rows_since(span interval)
  returns table (company_id bigint, id bigint, since timestamptz, facts jsonb)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select o.company_id, o.id, o.first_seen_at,
           jsonb_build_object(
             'operation', o.operation,
             'tin', o.tin,
             'number', o.number,
             'row_key', o.row_key,
             'problems', o.problems,
             'shown', o.shown,
             'last_seen_at', o.last_seen_at,
             'times', o.times)
      from public.portal_odd_rows o
     where o.last_seen_at > clock_timestamp() - span
     order by o.first_seen_at;
  end;
call run_across_companies('portal_odd_rows_since');
comment on function portal_odd_rows_since is
  'Portal rows of all companies that could not be read and were shown within `span`, the oldest '
  'first.';
