create or replace function flat_members(value jsonb) returns jsonb
  immutable parallel safe language sql
  return (
    select coalesce(jsonb_object_agg(coalesce(m.key || '.' || n.key, m.key),
                                     coalesce(n.value, m.value)), '{}')
      from jsonb_each(coalesce(value, '{}')) m
      left join lateral jsonb_each(case when jsonb_typeof(m.value) = 'object' then m.value
                                        else '{}' end) n on true);
comment on function flat_members is
  'A JSON object in which members of nested objects have names like setting.INVOICE_PREFIX. An '
  'object without a value is empty.';
