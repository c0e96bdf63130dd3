-- A TIN belongs to one company, unless the operator shares it, and is verified before it is used.

-- A TIN as the portal client sends it: upper case, without white space and hyphens. The counterpart of
-- service.documents.ubl.parties.own_tin.
create function normalised_tin(tin text) returns text
  immutable parallel safe language sql
  return regexp_replace(
    upper(tin collate "C"),
    '[\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff-]+', '', 'g');
comment on function normalised_tin(text) is 'A TIN as it is sent to the portal: upper case, without white space and hyphens.';

-- The operator made the companies that exist already, so their TINs count as verified. A default that is computed once
-- fills the column in all rows, also those that row-level security hides from the migrating role.
alter table companies
  add column tin text generated always as (normalised_tin(tin_code)) stored,
  add column tin_verified_at timestamptz default now();
alter table companies alter column tin_verified_at drop default;
create index companies_by_tin on companies (tin);
comment on column companies.tin is 'tin_code as it is sent to the portal and as TINs are compared; empty: none.';
comment on column companies.tin_verified_at is
  'When the operator confirmed that the TIN is the company''s. Null: not verified, nothing may be done in its name.';

-- TINs that several companies may have, by decision of the operator.
create table shared_tins (
  tin       text primary key,
  note      text not null,
  shared_at timestamptz not null default clock_timestamp(),
  constraint shared_tins_normalised check (tin = normalised_tin(tin) and tin <> ''),
  constraint shared_tins_note check (btrim(note) <> '')
);
comment on table shared_tins is 'TINs that several companies may have. Written by the commands share-tin and unshare-tin.';
comment on column shared_tins.tin is 'As companies.tin.';
comment on column shared_tins.note is 'Why the operator shares it.';
comment on column shared_tins.shared_at is 'Since when it is shared.';
grant select, insert, update, delete on shared_tins to einvoice_service;
grant select on shared_tins to einvoice_across;

-- What was allowed before stays allowed.
alter table companies no force row level security;
insert into shared_tins (tin, note)
select c.tin, 'Several companies had it before a TIN belonged to one company.'
  from companies c
 where c.tin <> ''
 group by c.tin
having count(*) > 1;
alter table companies force row level security;

-- Serialises all that decides whose a TIN is, until the transaction ends.
create function lock_tin(tin text) returns void
  volatile language sql
  begin atomic
    select pg_advisory_xact_lock(hashtextextended('TIN ' || tin, 0));
  end;
comment on function lock_tin(text) is 'Locks a normalised TIN until the transaction ends.';

-- Of the companies, the owner of the following functions sees those of the one TIN that is asked for.
create policy companies_of_tin on companies to einvoice_across using (tin = current_setting('app.tin_lookup', true));
grant select (tin) on companies to einvoice_across;

create function companies_of_tin(wanted text) returns bigint[]
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
declare
  former text := coalesce(current_setting('app.tin_lookup', true), '');
  holders bigint[];
begin
  perform set_config('app.tin_lookup', wanted, true);
  holders := array(select c.id from public.companies c where c.tin = wanted and wanted <> '' order by c.id);
  perform set_config('app.tin_lookup', former, true);
  return holders;
end $$;
comment on function companies_of_tin(text) is 'The ids of the companies that have one exact normalised TIN.';
alter function companies_of_tin(text) owner to einvoice_across;
revoke all on function companies_of_tin(text) from public;
grant execute on function companies_of_tin(text) to einvoice_service;

-- The statement after the lock sees what the lock's former holder committed, which is so in read committed only.
create function refuse_taken_tin() returns trigger
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.tin = new.tin then
    return null;
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise feature_not_supported using message = 'a TIN can only be set in a transaction of isolation level read committed';
  end if;
  perform public.lock_tin(new.tin);
  if new.id <> any (public.companies_of_tin(new.tin))
     and not exists (select from public.shared_tins s where s.tin = new.tin) then
    raise unique_violation using
      message = 'the TIN belongs to another company', schema = 'public', table = 'companies', constraint = 'companies_tin_once';
  end if;
  return null;
end $$;
comment on function refuse_taken_tin() is 'Raises unique_violation (companies_tin_once) for a TIN that another company has and that is not shared.';
alter function refuse_taken_tin() owner to einvoice_across;
revoke all on function refuse_taken_tin() from public;

create trigger companies_tin_once
  after insert or update of tin_code on companies
  for each row when (new.tin <> '') execute function refuse_taken_tin();

-- What the portal would miss or refuse in the company as the issuer of a document, in the order of the record; empty when
-- it is ready. `path` is a JSON Pointer into the record. Portal: 3.2, 10.3, 10.4
create function company_readiness(company companies) returns jsonb
  stable language sql
  return (
    select coalesce(
             jsonb_agg(jsonb_build_object('code', f.code, 'path', '/' || f.member, 'message', f.message) order by f.place),
             '[]')
      from (values
        (1, 'name', 'Required', 'The name is missing.',
         btrim((company).name) <> ''),
        (2, 'tin_code', 'Required', 'The TIN is missing.',
         (company).tin <> ''),
        (3, 'tin_code', 'Format', 'The TIN must be a prefix and digits, like C20880050010.',
         (company).tin = '' or (company).tin ~ '^(IG|C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[0-9]{6,12}$'),
        (4, 'tin_code', 'tin_not_verified', 'The TIN of the company is not verified yet. The operator of the service has to confirm it.',
         (company).tin = '' or (company).tin_verified_at is not null),
        (5, 'registration_number', 'Required', 'The registration number is missing.',
         number_or_na((company).registration_number) <> 'NA'),
        (6, 'registration_number', 'Format',
         'The registration number must be 12 digits for an NRIC, else letters and digits: at most 20 for a BRN, 12 for a passport or army number.',
         number_or_na((company).registration_number) = 'NA'
         or regexp_replace((company).registration_number, '[\s-]', '', 'g') ~
            case (company).registration_type when 'NRIC' then '^[0-9]{12}$'
                                             when 'BRN' then '^[0-9A-Za-z]{1,20}$'
                                             else '^[0-9A-Za-z]{1,12}$' end),
        (7, 'registration_type', 'Required', 'The registration type is missing.',
         (company).registration_type is not null),
        (8, 'business_activity_description', 'Required', 'The business activity is missing.',
         btrim((company).business_activity_description) <> '' or (company).msic_code = '00000'),
        (9, 'msic_code', 'Required', 'The MSIC code is missing.',
         btrim((company).msic_code) <> ''),
        (10, 'msic_code', 'Format', 'The MSIC code must be five digits.',
         absent_or_like((company).msic_code, '^[0-9]{5}$')),
        (11, 'country', 'Required', 'The country is missing.',
         btrim((company).country) <> ''),
        (12, 'country', 'Format', 'The country must be a code of three letters, like MYS.',
         absent_or_like((company).country, '^[A-Z]{3}$')),
        (13, 'state', 'Required', 'The state is missing.',
         (company).country is distinct from 'MYS' or btrim((company).state) <> ''),
        (14, 'state', 'Format', 'The state must be a code from 01 to 16.',
         (company).country is distinct from 'MYS' or absent_or_like((company).state, '^(0[1-9]|1[0-6])$')),
        (15, 'zip_code', 'Format', 'The postcode must be at most five digits.',
         (company).country is distinct from 'MYS' or absent_or_like((company).zip_code, '^[0-9]{1,5}$')),
        (16, 'city', 'Required', 'The city is missing.',
         btrim((company).city) <> ''),
        (17, 'address', 'Required', 'The address is missing.',
         btrim((company).address) <> ''),
        (18, 'phone', 'Required', 'The phone number is missing.',
         btrim((company).phone) <> ''),
        (19, 'phone', 'Format', 'The phone number must be 8 to 20 characters: digits, with an optional + in front.',
         coalesce(btrim((company).phone), '') = ''
         or regexp_replace((company).phone, '[\s()\[\]-]', '', 'g') ~ '^(\+[0-9]{7,19}|[0-9]{8,20})$'),
        (20, 'email', 'Format', 'The e-mail must be one address.',
         absent_or_like((company).email, '^[^\s@]+@[^\s@]+$'))
      ) as f (place, member, code, message, holds)
     where f.holds is not true);
comment on function company_readiness(companies) is
  'Why the portal would not take the company as the issuer of a document, as an array of {code, path, message}.';

drop view company_records;
drop function company_is_ready(companies);
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
       company_readiness(c) = '[]' as is_company_ready,
       company_readiness(c) as readiness,
       c.tin_verified_at is not null as tin_verified,
       instant(c.tin_verified_at) as tin_verified_at,
       as_buyer(c) as as_buyer,
       as_supplier(c) as as_supplier
  from companies c;
comment on view company_records is 'The company as the API returns it. A text that is not known yet is empty.';
grant select on company_records to einvoice_service;
