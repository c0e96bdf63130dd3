-- An endpoint can ask for the record of each event in its deliveries.

alter table webhook_endpoints add column include_record boolean not null default false;
comment on column webhook_endpoints.include_record is
  'Whether deliveries contain the record that the event is about.';

-- Support staff can see which secret key sealed a private key, and nothing of the private key.

alter table signing_certificates
  add column secret_key_id bytea generated always as (substring(sealed_key for 4)) stored;
grant select (secret_key_id) on signing_certificates to einvoice_reader;
comment on column signing_certificates.secret_key_id is
  'Id of the secret key that sealed the private key. Null: removed.';

-- The audit log shows what was changed, except secrets and the contents of documents.

alter table audit_log add column changes jsonb;
grant insert (changes) on audit_log to einvoice_service;
comment on column audit_log.changes is
  'Old and new values by member: {"city": {"old": "Ipoh", "new": "Klang"}}. Null: none are kept.';
