-- `2 (a, b)` demands both. `1 (a, b)` demands only one of the two, and `*` any one.
create or replace function synchronous_standbys() returns text[]
  stable language sql
  begin atomic
    with setting as (
      select regexp_match(
               current_setting('synchronous_standby_names'),
               '^\s*(?:(?:(?:first|any)\s+)?(\d+)\s*\(([^()]*)\)|([^()]*))\s*$', 'i') as part
    ), listed as (
      select coalesce(s.part[1]::numeric, 1) as demanded,
             array(select distinct lower(regexp_replace(n.name, '^\s*"?|"?\s*$', '', 'g'))
                     from unnest(string_to_array(coalesce(s.part[2], s.part[3]), ',')) n (name)
             ) as names
        from setting s
    )
    select coalesce((select l.names
                       from listed l
                      where l.demanded = cardinality(l.names)
                        and not exists (select
                                          from unnest(l.names) n (name)
                                         where n.name !~ '^[a-z0-9_.-]+$')
                        and current_setting('synchronous_commit') in ('on', 'remote_apply')),
                    '{}');
  end;
comment on function synchronous_standbys is
  'Names of the standbys that all have to store a transaction of this session before its commit is '
  'confirmed, in lower case. Empty: none, or it is not certain which.';
