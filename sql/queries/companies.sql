-- Companies and keys. A statement that takes no :company_id asks a function that answers for one exact key.

-- name: company_id_next :value
-- The id of a company that is about to be made: the wall is opened for it before its row is there.
select nextval(pg_get_serial_sequence('companies', 'id'));

-- name: company_insert :value
-- A company that the operator makes, whose TIN counts as verified. Can violate companies_tin_once.
insert into companies (id, name, tin_code, tin_verified_at, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state, zip_code,
       city, address, phone, email)
values (:company_id, :name, :tin_code, clock_timestamp(), :registration_number, :registration_type, :sst_registration_number,
       :tourism_tax_registration_number, :business_activity_description, :msic_code, :country, :state, :zip_code,
       :city, :address, :phone, :email)
returning id;

-- name: company_exists :value
select true from companies where id = :company_id;

-- name: company_auto_submits :value
select (setting -> 'AUTO_SUBMIT_INVOICE')::boolean from companies where id = :company_id;

-- name: issuer_get :one
-- The company as its documents need it, and the database's clock.
select name, tin_code, tin_verified_at, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state, zip_code,
       city, address, phone, email, bank_account, exporter_certified_number, clock_timestamp() as now
  from companies
 where id = :company_id;

-- name: company_get :value
-- The record as JSON text.
select to_json(r) from company_records r where id = :company_id;

-- name: company_lock :one
-- Locks the company for a change and gives what can be changed; what refers to the company goes on meanwhile.
select name, tin_code, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state, zip_code,
       city, address, phone, email, setting::text as setting
  from companies
 where id = :company_id
   for no key update;

-- name: company_hold :exec
-- Keeps the company's TIN as it is until the transaction ends: whoever is about to send a document with it.
select 1 from companies where id = :company_id for key share;

-- name: company_lock_alone :exec
-- Waits for those that hold the company, and keeps new ones out. Look for their documents in a later statement.
select 1 from companies where id = :company_id for update;

-- name: company_has_undecided :value
-- True when a document of the company is on its way to the portal, or there and not yet judged.
select true
  from submitted_documents
 where company_id = :company_id and status in ('Submitting', 'Submitted')
 limit 1;

-- name: company_update :exec
-- Writes the whole of a locked company. A blank number of a tax is none. A TIN that differs in more than its spelling is
-- not verified any more, unless :verifies_tin. Can violate companies_tin_once.
with former as (
  select fingerprint(to_jsonb(c)) as was from companies c where c.id = :company_id
), changed as (
  update companies
     set name = :name,
         tin_code = :tin_code,
         tin_verified_at = coalesce(case when tin = normalised_tin(:tin_code) then tin_verified_at end,
                                    case when :verifies_tin::boolean then clock_timestamp() end),
         registration_number = :registration_number,
         registration_type = :registration_type,
         sst_registration_number = nullif(btrim(:sst_registration_number), ''),
         tourism_tax_registration_number = nullif(btrim(:tourism_tax_registration_number), ''),
         business_activity_description = :business_activity_description,
         msic_code = :msic_code,
         country = :country,
         state = :state,
         zip_code = :zip_code,
         city = :city,
         address = :address,
         phone = :phone,
         email = :email,
         setting = :setting::jsonb,
         updated_at = clock_timestamp()
   where id = :company_id
  returning id, fingerprint(to_jsonb(companies)) as becomes
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, after_sha256)
  select id, 'change', 'company settings', was, becomes from changed cross join former
)
insert into events (company_id, type, data)
select id, 'company.updated', jsonb_build_object('company_id', id) from changed;

-- name: company_tin_lock :one
-- Locks the company and returns its TIN, as given and normalised, and since when that is verified.
select tin_code, tin, tin_verified_at
  from companies
 where id = :company_id
   for no key update;

-- name: company_tin_verify :value
-- Verifies the TIN of a locked company and returns the time. No row: it is verified already.
with former as (
  select fingerprint(to_jsonb(c)) as was from companies c where c.id = :company_id
), verified as (
  update companies
     set tin_verified_at = clock_timestamp(), updated_at = clock_timestamp()
   where id = :company_id and tin_verified_at is null
  returning id, tin, tin_verified_at, fingerprint(to_jsonb(companies)) as becomes
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, after_sha256)
  select id, 'verify', format('TIN %s', tin), was, becomes from verified cross join former
), noted as (
  insert into events (company_id, type, data)
  select id, 'company.updated', jsonb_build_object('company_id', id) from verified
)
select tin_verified_at from verified;

-- name: tin_lock :exec
-- Keeps every company from taking the TIN, and the operator from sharing it, until the transaction ends.
select lock_tin(:tin);

-- name: tin_companies :value
-- The ids of the companies that have a normalised TIN, as an array.
select companies_of_tin(:tin);

-- name: tin_share :one
-- Allows several companies to have a normalised TIN; one that is shared already gets the note. In the transaction of a
-- company that has it; :company_id is null when none has.
with shared as (
  insert into shared_tins (tin, note)
  values (:tin, :note)
      on conflict (tin) do update set note = excluded.note
  returning tin, note, shared_at
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'share', format('TIN %s', tin) from shared where :company_id is not null
)
select tin, note, shared_at from shared;

-- name: tin_unshare :value
-- Returns the TIN to its one company, in the transaction of that company; null: it was not shared.
with unshared as (
  delete from shared_tins
   where tin = :tin
  returning tin
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'unshare', format('TIN %s', tin) from unshared where :company_id is not null
)
select tin from unshared;

-- name: api_key_insert :exec
with audited as (
  insert into audit_log (company_id, action, subject)
  values (:company_id, 'create', format('key %s', :key_id::text))
)
insert into api_keys (company_id, key_id, name, secret_sha256, expires_at)
values (:company_id, :key_id, :name, :secret_sha256, :expires_at);

-- name: api_key_of :one
-- One key, whatever its state; no row: unknown. `expires_in` are seconds, less than 0 for one that has expired, null
-- for one that never does: this clock's, and no other's, decides.
select company_id, secret_sha256, revoked_at is not null as revoked,
       extract(epoch from expires_at - clock_timestamp())::float8 as expires_in
  from api_key_of(:key_id);

-- name: api_key_revoke :value
-- True when the key was live until now. Tells every process.
with revoked as (
  update api_keys
     set revoked_at = clock_timestamp()
   where company_id = :company_id and key_id = :key_id and revoked_at is null
  returning key_id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'revoke', format('key %s', key_id) from revoked
)
select pg_notify('api_key_changed', key_id) is not null from revoked;

-- name: api_key_used :exec
-- One write a minute, however many processes have seen the key.
update api_keys
   set last_used_at = date_trunc('minute', clock_timestamp())
 where company_id = :company_id and key_id = :key_id
   and last_used_at is distinct from date_trunc('minute', clock_timestamp());
