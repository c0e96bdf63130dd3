create or replace function value_changes(was jsonb, becomes jsonb) returns jsonb
  immutable parallel safe language sql
  return (
    with members as (
      select coalesce(m.key || '.' || n.key, m.key) as name,
             jsonb_agg(coalesce(n.value, m.value)) filter (where side = 'old') -> 0 as old,
             jsonb_agg(coalesce(n.value, m.value)) filter (where side = 'new') -> 0 as new
        from (values ('old', was), ('new', becomes)) sides (side, value)
       cross join lateral jsonb_each(coalesce(sides.value, '{}')) m
        left join lateral jsonb_each(case when jsonb_typeof(m.value) = 'object' then m.value
                                          else '{}' end) n on true
       group by 1
    )
    select jsonb_object_agg(name, jsonb_build_object('old', old, 'new', new))
      from members
     where coalesce(old, 'null') <> coalesce(new, 'null')
       and name not in ('id', 'company_id', 'created_at', 'updated_at', 'tin'));
comment on function value_changes is
  'Members of two JSON objects with different values: {name: {old, new}}. Null: none. A null '
  'object has no members. Members of nested objects are named like setting.INVOICE_PREFIX.';
