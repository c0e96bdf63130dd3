create or replace view company_records with (security_invoker = true) as
select c.id,
       c.name,
       c.tin_code,
       coalesce(c.registration_number, '') as registration_number,
       coalesce(c.registration_type, '') as registration_type,
       c.sst_registration_number,
       c.tourism_tax_registration_number,
       coalesce(c.business_activity_description, '') as business_activity_description,
       coalesce(c.msic_code, '') as msic_code,
       coalesce(c.country, '') as country,
       coalesce(c.state, '') as state,
       coalesce(c.zip_code, '') as zip_code,
       coalesce(c.city, '') as city,
       coalesce(c.address, '') as address,
       coalesce(c.phone, '') as phone,
       coalesce(c.email, '') as email,
       c.bank_account,
       c.exporter_certified_number,
       c.setting,
       instant(c.created_at) as created_at,
       instant(c.updated_at) as updated_at,
       c.default_tax_types_and_rates,
       company_readiness(c) = '[]' as is_company_ready,
       company_readiness(c) as readiness,
       c.tin_verified_at is not null as tin_verified,
       instant(c.tin_verified_at) as tin_verified_at,
       as_buyer(c) as as_buyer,
       as_supplier(c) as as_supplier
  from companies c;
grant select on company_records to einvoice_service, einvoice_reader;
call copy_comments('companies', 'company_records');
comment on view company_records is
  'Companies as the API returns them. A text that is not known yet is empty.';
comment on column company_records.registration_number is
  'Business registration or identity number. Empty: not known.';
comment on column company_records.registration_type is
  'Kind of registration_number. Empty: not known.';
comment on column company_records.business_activity_description is
  'Business activity in words. Empty: not known.';
comment on column company_records.msic_code is
  'Five-digit code of the business activity. Empty: not known.';
comment on column company_records.country is 'Country code of three letters. Empty: not known.';
comment on column company_records.state is 'State code of the portal''s list. Empty: not known.';
comment on column company_records.zip_code is 'Postcode. Empty: not known.';
comment on column company_records.city is 'City. Empty: not known.';
comment on column company_records.address is 'Street address. Empty: not known.';
comment on column company_records.phone is 'Phone number. Empty: not known.';
comment on column company_records.email is 'Email address. Empty: not known.';
comment on column company_records.is_company_ready is
  'Whether the portal would accept the company as an issuer.';
comment on column company_records.readiness is
  'Why the portal would reject the company as an issuer. Empty: it is ready.';
comment on column company_records.tin_verified is 'Whether the operator confirmed the TIN.';
comment on column company_records.as_buyer is 'The company as the buyer of a document.';
comment on column company_records.as_supplier is 'The company as the supplier of a document.';
