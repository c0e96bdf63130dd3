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
call describe('company_records', '
  Companies as the API returns them. A text that is not known yet is empty.

  registration_number: Business registration or identity number. Empty: not known.
  registration_type: Kind of registration_number. Empty: not known.
  business_activity_description: Business activity in words. Empty: not known.
  msic_code: Five-digit code of the business activity. Empty: not known.
  country: Country code of three letters. Empty: not known.
  state: State code of the portal''s list. Empty: not known.
  zip_code: Postcode. Empty: not known.
  city: City. Empty: not known.
  address: Street address. Empty: not known.
  phone: Phone number. Empty: not known.
  email: Email address. Empty: not known.
  is_company_ready: Whether the portal would accept the company as an issuer.
  readiness: Why the portal would reject the company as an issuer. Empty: it is ready.
  tin_verified: Whether the operator confirmed the TIN.
  as_buyer: The company as the buyer of a document.
  as_supplier: The company as the supplier of a document.
', 'companies');
