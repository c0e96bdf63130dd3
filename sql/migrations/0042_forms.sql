-- compatible: 0041
-- Secrets that a page shows once, and the secret of a person's forms.

alter table idempotency_keys add column sealed_secrets bytea;
comment on column idempotency_keys.sealed_secrets is
  'Secrets of the response to a form, which a page shows once. They are encrypted with a key that '
  'only the browser of the person has. Null: there are none, or they were shown.';

alter table users add column form_secret bytea not null
  default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
comment on column users.form_secret is
  'Random bytes from which the tokens of the person''s forms are derived.';
