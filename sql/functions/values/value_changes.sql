create or replace function value_changes(was jsonb, becomes jsonb) returns jsonb
  immutable parallel safe language sql
  return (
    with members as (
      select coalesce(o.key, n.key) as name, o.value as old, n.value as new
        from jsonb_each(flat_members(was)) o
        full join jsonb_each(flat_members(becomes)) n on n.key = o.key
    )
    select jsonb_object_agg(name, jsonb_build_object('old', old, 'new', new))
      from members
     where coalesce(old, 'null') <> coalesce(new, 'null')
       and name not in ('id', 'company_id', 'created_at', 'updated_at', 'tin'));
comment on function value_changes is
  'Members of two JSON objects with different values: {name: {old, new}}. Null: none. A null '
  'object has no members. Members of nested objects are named like setting.INVOICE_PREFIX.';
