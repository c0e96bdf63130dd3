create or replace function value_changes(was jsonb, becomes jsonb) returns jsonb
  immutable parallel safe language sql
  return (
    select jsonb_object_agg(name, '{"old": null, "new": null}' || sides)
      from (select coalesce(m.key || '.' || n.key, m.key) as name,
                   jsonb_object_agg(v.side, coalesce(n.value, m.value)) as sides
              from (values ('old', was), ('new', becomes)) v (side, members)
             cross join lateral jsonb_each(v.members) m
              left join lateral jsonb_each(case when jsonb_typeof(m.value) = 'object' then m.value
                                                else '{}' end) n on true
             group by 1) each
     where coalesce(sides -> 'old', 'null') <> coalesce(sides -> 'new', 'null')
       and name not in ('id', 'company_id', 'created_at', 'updated_at', 'tin'));
comment on function value_changes is
  'Members of two JSON objects with different values: {name: {old, new}}. Null: none. A null '
  'object has no members. Members of nested objects are named like setting.INVOICE_PREFIX.';
