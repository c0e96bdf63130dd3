-- E-invoice requests, the company as the API shows it, and which TINs the portal has confirmed.

-- A buyer's request for an e-invoice of a sale. Its supplier is the company, as it is when the request is read.
create table einvoice_requests (
  company_id   bigint not null references companies,
  id           bigint generated always as identity,
  invoice_code text not null,   -- an invoice's code or full code, as the buyer read it
  buyer        jsonb not null,  -- in the shape of an invoice's buyer
  status       text not null default 'Pending',
  invoice_id   bigint,          -- the invoice that its approval finalised
  created_at   timestamptz not null default clock_timestamp(),
  updated_at   timestamptz not null default clock_timestamp(),
  deleted_at   timestamptz,
  primary key (company_id, id),
  foreign key (company_id, invoice_id) references invoices (company_id, id),
  constraint einvoice_requests_status check (status in ('Pending', 'Approve', 'Reject'))
);
create index einvoice_requests_by_id on einvoice_requests (company_id, id) where deleted_at is null;
create index einvoice_requests_by_status on einvoice_requests (company_id, status, id) where deleted_at is null;
call keep_companies_apart('einvoice_requests');
grant select, insert, update on einvoice_requests to einvoice_service;

-- TINs that the portal has confirmed for a company, with the identifier that was asked about; '' is a TIN alone.
create table tin_checks (
  company_id   bigint not null references companies,
  tin          text not null,
  id_type      text not null,
  id_value     text not null,
  confirmed_at timestamptz not null,
  primary key (company_id, tin, id_type, id_value)
);
create index tin_checks_by_age on tin_checks (company_id, confirmed_at);
call keep_companies_apart('tin_checks');
grant select, insert, update, delete on tin_checks to einvoice_service;

-- What bars a change of the company's TIN.
create index submitted_documents_undecided on submitted_documents (company_id)
  where status in ('Submitting', 'Submitted');

-- A blank number is an absent one.
create function number_or_na(number text) returns text
  immutable parallel safe language sql
  return coalesce(nullif(btrim(number), ''), 'NA');

create or replace function as_buyer(company companies) returns json
  stable language sql
  return json_build_object(
    'contactNumber', (company).phone,
    'name', (company).name,
    'partyType', 'LOCAL_COMPANY',
    'registrationType', (company).registration_type,
    'registrationNumber', number_or_na((company).registration_number),
    'sstRegistrationNumber', number_or_na((company).sst_registration_number),
    'tin', (company).tin_code,
    'address', json_build_object(
      'addressLine0', (company).address, 'cityName', (company).city, 'country', (company).country,
      'state', (company).state, 'postalZone', (company).zip_code),
    'email', (company).email);

create or replace function as_supplier(company companies) returns json
  stable language sql
  return (as_buyer(company)::jsonb || jsonb_build_object(
    'businessActivityDescription', (company).business_activity_description,
    'msic', (company).msic_code,
    'tourismTaxRegistrationNumber', number_or_na((company).tourism_tax_registration_number)))::json;

-- Whether a text says nothing that the portal would stumble over: absent or blank, or of the form.
create function absent_or_like(given text, form text) returns boolean
  immutable parallel safe language sql
  return coalesce(btrim(given), '') = '' or btrim(given) ~ form;

-- Whether the portal would take the company as the issuer of a document. Portal: 3.2, 10.3, 10.4
create function company_is_ready(company companies) returns boolean
  stable language sql
  return coalesce(
    btrim((company).name) <> ''
    and (company).tin_code ~ '^(IG|C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[0-9]{6,12}$'
    and regexp_replace((company).registration_number, '[\s-]', '', 'g') ~
        case (company).registration_type when 'NRIC' then '^[0-9]{12}$'
                                         when 'BRN' then '^[0-9A-Za-z]{1,20}$'
                                         else '^[0-9A-Za-z]{1,12}$' end
    and (company).registration_type is not null
    and regexp_replace((company).phone, '[\s()\[\]-]', '', 'g') ~ '^(\+[0-9]{7,19}|[0-9]{8,20})$'
    and btrim((company).address) <> ''
    and btrim((company).city) <> ''
    and (company).country ~ '^[A-Z]{3}$'
    and ((company).country <> 'MYS' or (company).state ~ '^(0[1-9]|1[0-6])$')
    and ((company).country <> 'MYS' or absent_or_like((company).zip_code, '^[0-9]{1,5}$'))
    and (company).msic_code ~ '^[0-9]{5}$'
    and (btrim((company).business_activity_description) <> '' or (company).msic_code = '00000')
    and absent_or_like((company).email, '^[^\s@]+@[^\s@]+$'),
    false);

-- A text that a company does not have yet is empty, where the API promises a text.
create view company_records with (security_invoker = true) as
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
       company_is_ready(c) as is_company_ready,
       as_buyer(c) as as_buyer,
       as_supplier(c) as as_supplier
  from companies c;

create view einvoice_request_records with (security_invoker = true) as
select r.id,
       r.company_id,
       r.invoice_code,
       json_build_object('buyer', r.buyer, 'supplier', as_supplier(c),
                         'invoice_code', r.invoice_code) as document_details,
       r.status,
       r.invoice_id,
       instant(r.created_at) as created_at,
       instant(r.updated_at) as updated_at
  from einvoice_requests r
  join companies c on c.id = r.company_id
 where r.deleted_at is null;

grant select on company_records, einvoice_request_records to einvoice_service;
