-- `readiness` is an array of {code, path, message} in the order of the record. `path` is a JSON
-- Pointer into the record.
-- Portal: 3.2, 10.3, 10.4
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
       r.readiness = '[]' as is_company_ready,
       r.readiness,
       c.tin_verified_at is not null as tin_verified,
       instant(c.tin_verified_at) as tin_verified_at,
       as_buyer(c) as as_buyer,
       as_supplier(c) as as_supplier
  from companies c
 cross join lateral (
    select coalesce(
             jsonb_agg(
               jsonb_build_object('code', f.code, 'path', '/' || f.member, 'message', f.message)
               order by f.place),
             '[]') as readiness
      from (select coalesce(nullif(btrim(c.country), ''), 'MYS') = 'MYS' as is_home,
                   btrim(c.address) = 'NA' and btrim(c.state) <> '' as has_state_only) a
     cross join lateral (values
        (1, 'name', 'Required', 'The name is missing.',
         btrim(c.name) <> ''),
        (2, 'tin_code', 'Required', 'The TIN is missing.',
         c.tin <> ''),
        (3, 'tin_code', 'Format',
         'The TIN must be a prefix and digits that end in 0, or IG and digits.',
         c.tin = ''
         or c.tin ~
            '^(?!.{15})(IG[0-9]+|(C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[1-9][0-9]*0)$'),
        (4, 'tin_code', 'tin_not_verified',
         'The TIN of the company is not verified yet; '
         'the operator of the service must confirm it.',
         c.tin = '' or c.tin_verified_at is not null),
        (5, 'registration_number', 'Required', 'The registration number is missing.',
         number_or_na(c.registration_number) <> 'NA'),
        (6, 'registration_number', 'Format',
         'The registration number must be 12 digits for an NRIC, else letters and digits: '
         'at most 20 for a BRN, 12 for a passport or army number.',
         number_or_na(c.registration_number) = 'NA'
         or regexp_replace(c.registration_number, '[\s-]', '', 'g') ~
            case c.registration_type when 'NRIC' then '^[0-9]{12}$'
                                     when 'BRN' then '^[0-9A-Za-z]{1,20}$'
                                     else '^[0-9A-Za-z]{1,12}$' end),
        (7, 'registration_type', 'Required', 'The registration type is missing.',
         c.registration_type is not null),
        (8, 'sst_registration_number', 'Format',
         'The SST number must be letters, digits and hyphens, or two such numbers separated by a '
         'semicolon.',
         coalesce(regexp_replace(c.sst_registration_number, '\s', '', 'g'), '')
         ~ '^([0-9A-Za-z-]+([,;]+[0-9A-Za-z-]+)?)?$'),
        (9, 'tourism_tax_registration_number', 'Format',
         'The tourism tax number must be letters, digits and hyphens.',
         coalesce(regexp_replace(c.tourism_tax_registration_number, '\s', '', 'g'), '')
         ~ '^[0-9A-Za-z-]*$'),
        (10, 'business_activity_description', 'Required', 'The business activity is missing.',
         btrim(c.business_activity_description) <> '' or c.msic_code = '00000'),
        (11, 'msic_code', 'Required', 'The MSIC code is missing.',
         btrim(c.msic_code) <> ''),
        (12, 'msic_code', 'Format', 'The MSIC code must be five digits.',
         coalesce(btrim(c.msic_code), '') ~ '^([0-9]{5})?$'),
        (13, 'country', 'Required', 'The country is missing.',
         a.has_state_only or btrim(c.country) <> ''),
        (14, 'country', 'Format', 'The country must be a code of three letters, like MYS.',
         coalesce(btrim(c.country), '') ~ '^([A-Z]{3})?$'),
        (15, 'state', 'Required', 'The state is missing.',
         not a.is_home or btrim(c.state) <> ''),
        (16, 'state', 'Format', 'The state must be a code from 01 to 16.',
         not a.is_home or coalesce(btrim(c.state), '') ~ '^(0[1-9]|1[0-6])?$'),
        (17, 'zip_code', 'Format', 'The postcode must be at most five digits.',
         not a.is_home or coalesce(btrim(c.zip_code), '') ~ '^[0-9]{0,5}$'),
        (18, 'city', 'Required', 'The city is missing.',
         a.has_state_only or btrim(c.city) <> ''),
        (19, 'address', 'Required', 'The address is missing.',
         btrim(c.address) <> ''),
        (20, 'phone', 'Required', 'The phone number is missing.',
         btrim(c.phone) <> ''),
        (21, 'phone', 'Format',
         'The phone number must be 8 to 20 characters: digits, with an optional + in front.',
         coalesce(btrim(c.phone), '') = ''
         or regexp_replace(c.phone, '[\s()\[\]-]', '', 'g')
            ~ '^(\+[0-9]{7,19}|[0-9]{8,20})$'),
        (22, 'email', 'Format', 'The e-mail must be one address.',
         coalesce(btrim(c.email), '')
         ~ '^([^\s@.]+(\.[^\s@.]+)*@[^\s@.]+(\.[^\s@.]+)+)?$')
      ) as f (place, member, code, message, holds)
     where f.holds is not true) r;
call publish('company_records', '
  Companies as the API returns them. A text that is not known yet is empty.

  is_company_ready: Whether the portal would accept the company as an issuer.
  readiness: Why the portal would reject the company as an issuer. Empty: it is ready.
  tin_verified: Whether the operator confirmed the TIN.
  as_buyer: The company as the buyer of a document.
  as_supplier: The company as the supplier of a document.
', 'companies');
