create or replace function webhook_values(endpoint webhook_endpoints) returns jsonb
  immutable parallel safe language sql
  return jsonb_build_object(
    'url', endpoint.url, 'description', endpoint.description, 'types', endpoint.types,
    'enabled', endpoint.enabled, 'include_record', endpoint.include_record,
    'ordered', endpoint.ordered);
comment on function webhook_values is
  'Members of a webhook endpoint that clients set, for the audit log. No secret is among them.';
