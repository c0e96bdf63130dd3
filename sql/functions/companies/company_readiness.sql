-- The order is that of the company record. `path` is a JSON Pointer into the record.
-- Portal: 3.2, 10.3, 10.4
create or replace function company_readiness(company companies) returns jsonb
  stable language sql
  return (
    select coalesce(
             jsonb_agg(
               jsonb_build_object('code', f.code, 'path', '/' || f.member, 'message', f.message)
               order by f.place),
             '[]')
      from (select coalesce(nullif(btrim(company.country), ''), 'MYS') = 'MYS' as is_home,
                   btrim(company.address) = 'NA' and btrim(company.state) <> ''
                     as has_state_only) a
     cross join lateral (values
        (1, 'name', 'Required', 'The name is missing.',
         btrim(company.name) <> ''),
        (2, 'tin_code', 'Required', 'The TIN is missing.',
         company.tin <> ''),
        (3, 'tin_code', 'Format', 'The TIN must be a prefix and digits, like C20880050010.',
         company.tin = ''
         or company.tin ~ '^(IG|C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[0-9]{6,12}$'),
        (4, 'tin_code', 'tin_not_verified',
         'The TIN of the company is not verified yet; '
         'the operator of the service must confirm it.',
         company.tin = '' or company.tin_verified_at is not null),
        (5, 'registration_number', 'Required', 'The registration number is missing.',
         number_or_na(company.registration_number) <> 'NA'),
        (6, 'registration_number', 'Format',
         'The registration number must be 12 digits for an NRIC, else letters and digits: '
         'at most 20 for a BRN, 12 for a passport or army number.',
         number_or_na(company.registration_number) = 'NA'
         or regexp_replace(company.registration_number, '[\s-]', '', 'g') ~
            case company.registration_type when 'NRIC' then '^[0-9]{12}$'
                                             when 'BRN' then '^[0-9A-Za-z]{1,20}$'
                                             else '^[0-9A-Za-z]{1,12}$' end),
        (7, 'registration_type', 'Required', 'The registration type is missing.',
         company.registration_type is not null),
        (8, 'business_activity_description', 'Required', 'The business activity is missing.',
         btrim(company.business_activity_description) <> '' or company.msic_code = '00000'),
        (9, 'msic_code', 'Required', 'The MSIC code is missing.',
         btrim(company.msic_code) <> ''),
        (10, 'msic_code', 'Format', 'The MSIC code must be five digits.',
         coalesce(btrim(company.msic_code), '') ~ '^([0-9]{5})?$'),
        (11, 'country', 'Required', 'The country is missing.',
         a.has_state_only or btrim(company.country) <> ''),
        (12, 'country', 'Format', 'The country must be a code of three letters, like MYS.',
         coalesce(btrim(company.country), '') ~ '^([A-Z]{3})?$'),
        (13, 'state', 'Required', 'The state is missing.',
         not a.is_home or btrim(company.state) <> ''),
        (14, 'state', 'Format', 'The state must be a code from 01 to 16.',
         not a.is_home or coalesce(btrim(company.state), '') ~ '^(0[1-9]|1[0-6])?$'),
        (15, 'zip_code', 'Format', 'The postcode must be at most five digits.',
         not a.is_home or coalesce(btrim(company.zip_code), '') ~ '^[0-9]{0,5}$'),
        (16, 'city', 'Required', 'The city is missing.',
         a.has_state_only or btrim(company.city) <> ''),
        (17, 'address', 'Required', 'The address is missing.',
         btrim(company.address) <> ''),
        (18, 'phone', 'Required', 'The phone number is missing.',
         btrim(company.phone) <> ''),
        (19, 'phone', 'Format',
         'The phone number must be 8 to 20 characters: digits, with an optional + in front.',
         coalesce(btrim(company.phone), '') = ''
         or regexp_replace(company.phone, '[\s()\[\]-]', '', 'g')
            ~ '^(\+[0-9]{7,19}|[0-9]{8,20})$'),
        (20, 'email', 'Format', 'The e-mail must be one address.',
         coalesce(btrim(company.email), '')
         ~ '^([^\s@.]+(\.[^\s@.]+)*@[^\s@.]+(\.[^\s@.]+)+)?$')
      ) as f (place, member, code, message, holds)
     where f.holds is not true);
comment on function company_readiness is
  'Why the portal would reject the company as the issuer of a document: an array of {code, path, '
  'message}, empty when it is ready.';
