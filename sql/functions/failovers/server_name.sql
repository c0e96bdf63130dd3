create or replace function server_name() returns text
  stable language sql
  return lower(nullif(current_setting('einvoice.server_name', true), ''));
comment on function server_name is
  'Name of this server in synchronous_standby_names of the other servers, in lower case. Null: the '
  'setting einvoice.server_name is missing.';
