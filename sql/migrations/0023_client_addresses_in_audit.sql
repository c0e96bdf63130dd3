-- compatible: 0020
-- The audit log has the address of the client that made a change. Changes in integration_audit_log
-- are made by commands only.

alter table audit_log add column client_address inet;
alter table audit_log
  alter column client_address
    set default nullif(current_setting('app.client_address', true), '')::inet;
comment on column audit_log.client_address is
  'Address of the client. Null: not in a request, or not known.';
