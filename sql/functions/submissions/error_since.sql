create or replace function error_since(former jsonb, latest jsonb) returns jsonb
  volatile language sql
  return case when latest ->> 'code' in ('PortalUnreachable', 'ClocksApart')
              then latest
                   || jsonb_build_object(
                        'since',
                        coalesce(case when former ->> 'code' = latest ->> 'code'
                                      then former -> 'since' end,
                                 to_jsonb(clock_timestamp())))
              else latest end;
comment on function error_since is
  'The latest error of a submission. One for which many wait has the time since when it is the '
  'same as `since`.';
