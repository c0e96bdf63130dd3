-- Companies and keys. A statement that takes no :company_id asks a function that answers for one exact key.

-- name: company_id_next :value
-- The id of a company that is about to be made: the wall is opened for it before its row is there.
select nextval(pg_get_serial_sequence('companies', 'id'));

-- name: company_insert :value
insert into companies (id, name, tin_code, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state, zip_code,
       city, address, phone, email)
values (:company_id, :name, :tin_code, :registration_number, :registration_type, :sst_registration_number,
       :tourism_tax_registration_number, :business_activity_description, :msic_code, :country, :state, :zip_code,
       :city, :address, :phone, :email)
returning id;

-- name: company_exists :value
select true from companies where id = :company_id;

-- name: company_auto_submits :value
select (setting -> 'AUTO_SUBMIT_INVOICE')::boolean from companies where id = :company_id;

-- name: issuer_get :one
-- The company as its documents need it, and the database's clock.
select name, tin_code, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state, zip_code,
       city, address, phone, email, clock_timestamp() as now
  from companies
 where id = :company_id;

-- name: api_key_insert :exec
insert into api_keys (company_id, key_id, name, secret_sha256, expires_at)
values (:company_id, :key_id, :name, :secret_sha256, :expires_at);

-- name: api_key_of :one
-- company_id, secret_sha256, expires_at, revoked_at of one key, whatever its state; no row: unknown.
select company_id, secret_sha256, expires_at, revoked_at from api_key_of(:key_id);

-- name: api_key_revoke :value
-- True when the key was live until now. Tells every process.
with revoked as (
  update api_keys
     set revoked_at = clock_timestamp()
   where company_id = :company_id and key_id = :key_id and revoked_at is null
  returning key_id
)
select pg_notify('api_key_changed', key_id) is not null from revoked;

-- name: api_key_used :exec
update api_keys
   set last_used_at = date_trunc('minute', clock_timestamp())
 where company_id = :company_id and key_id = :key_id;
