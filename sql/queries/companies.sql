-- Companies.

-- name: company_insert :value
-- Insert a company for the operator, whose TIN counts as verified. Can violate companies_tin_once.
insert into companies (id, name, tin_code, tin_verified_at, registration_number, registration_type,
       sst_registration_number, tourism_tax_registration_number, business_activity_description,
       msic_code, country, state, zip_code, city, address, phone, email)
values (:company_id, :name, :tin_code, clock_timestamp(), :registration_number, :registration_type,
        :sst_registration_number, :tourism_tax_registration_number, :business_activity_description,
        :msic_code, :country, :state, :zip_code,
        :city, :address, :phone, :email)
returning id;

-- name: issuer_get :one
-- Return the company as its documents need it, and the database clock.
select name, tin_code, tin_verified_at, registration_number, registration_type,
       sst_registration_number, tourism_tax_registration_number, business_activity_description,
       msic_code, country, state, zip_code, city, address, phone, email, bank_account,
       exporter_certified_number, consolidation_relaxed_until,
       (setting -> 'AUTO_SUBMIT_INVOICE')::boolean as auto_submits, clock_timestamp() as now
  from companies
 where id = :company_id;

-- name: company_get :value
select to_json(r) from company_records r where id = :company_id;

-- name: company_lock :one
-- Lock the company for a change and return the columns that can change. Inserts that refer to the
-- company do not wait. Its webhooks or keys can be counted then: no other transaction adds one
-- before this one ends.
select name, tin_code, registration_number, registration_type, sst_registration_number,
       tourism_tax_registration_number, business_activity_description, msic_code, country, state,
       zip_code, city, address, phone, email, setting::text as setting,
       default_tax_types_and_rates::text as default_tax_types_and_rates
  from companies
 where id = :company_id
   for no key update;

-- name: company_tin_keep :exec
-- Keep the company's TIN unchanged until the transaction ends, for a document that is about to be
-- sent with it: company_lock_alone waits for that.
select 1 from companies where id = :company_id for key share;

-- name: company_lock_alone :exec
-- Wait for transactions that keep the TIN of the company (company_tin_keep), and block new ones.
-- Read their documents in a later statement.
select 1 from companies where id = :company_id for update;

-- name: company_work :one
-- Return whether a document of the company waits, is being sent or is at the portal without an
-- outcome; whether that is so without those that wait for an automatic submission and were never
-- received; and whether one is being cancelled. Lock the company alone first.
select exists (
         select
           from submitted_documents
          where company_id = :company_id and status in ('Submitting', 'Submitted'))
         as is_submitting,
       exists (
         select
           from submitted_documents d
           join submissions s on s.company_id = d.company_id and s.id = d.submission_id
          where d.company_id = :company_id and s.company_id = :company_id
            and d.status in ('Submitting', 'Submitted')
            and not (s.state = 'Queued' and s.on_absence = 'retry' and not s.possibly_received))
         as is_sent,
       exists (
         select
           from submitted_documents
          where company_id = :company_id and cancelling_until is not null) as is_cancelling;

-- name: company_update :value
-- Write all columns of a locked company, and return when its TIN was verified. A blank tax number
-- becomes null. A TIN that differs in more than its spelling is no longer verified, unless
-- :verifies_tin. Can violate companies_tin_once, also for a TIN that stays and is verified now.
with former as (
  select to_jsonb(c) as was from companies c where c.id = :company_id
), changed as (
  update companies
     set name = :name,
         tin_code = :tin_code,
         tin_verified_at = coalesce(
           case when tin = normalised_tin(:tin_code) then tin_verified_at end,
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
         default_tax_types_and_rates = :default_tax_types_and_rates::jsonb,
         updated_at = clock_timestamp()
   where id = :company_id
  returning id, tin_verified_at, to_jsonb(companies) as becomes
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, after_sha256, changes)
  select id, :action, :subject, fingerprint(was), fingerprint(becomes), value_changes(was, becomes)
    from changed cross join former
), noted as (
  insert into events (company_id, type, data)
  select id, 'company.updated', jsonb_build_object('company_id', id) from changed
)
select tin_verified_at from changed;

-- name: tin_share :one
-- Allow a normalised TIN to be verified for several companies, or update the note of a shared one.
-- Runs in the transaction of a company with the verified TIN; :company_id is null if there is none.
with former as (
  select note from shared_tins where tin = :tin
), shared as (
  insert into shared_tins (tin, note)
  values (:tin, :note)
      on conflict (tin) do update set note = excluded.note
  returning tin, note, shared_at
), audited as (
  insert into audit_log (company_id, action, subject, changes)
  select :company_id::bigint, 'share', format('TIN %s', tin),
         value_changes(jsonb_build_object('note', (select note from former)),
                       jsonb_build_object('note', note))
    from shared
   where :company_id is not null
)
select tin, note, shared_at from shared;

-- name: tin_unshare :value
-- Stop sharing a TIN, in the transaction of the one company for which it is verified. Null: it was
-- not shared.
with unshared as (
  delete from shared_tins
   where tin = :tin
  returning tin, note
), audited as (
  insert into audit_log (company_id, action, subject, changes)
  select :company_id::bigint, 'unshare', format('TIN %s', tin),
         value_changes(jsonb_build_object('note', note), null)
    from unshared
   where :company_id is not null
)
select tin from unshared;
