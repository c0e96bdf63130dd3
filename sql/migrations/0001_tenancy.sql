-- Roles, tenant isolation, companies and accounts with their keys, and what belongs to a company's
-- identity: TINs and signing certificates.
--
-- The functions in this file are here and not in sql/functions/ because tables need them: policies,
-- a generated column and column defaults call them.

-- einvoice_service: the role that the service runs as. It owns nothing and is bound by row-level
-- security.
-- einvoice_across: the owner of the few functions that must read or write across companies.
-- einvoice_reader: for support staff, who may read the rows of all companies, without secrets.
-- None of them can log in.
do $$
declare
  wanted text;
begin
  foreach wanted in array array['einvoice_service', 'einvoice_across', 'einvoice_reader'] loop
    begin
      execute format(
        'create role %I nologin nosuperuser nobypassrls nocreatedb nocreaterole', wanted);
    exception when duplicate_object or unique_violation then
      null;  -- Roles belong to the cluster. Another database of it has created this one.
    end;
    continue when wanted = 'einvoice_reader';  -- The migrating role needs no right of this one.
    begin
      execute format('grant %I to current_user', wanted);
    exception when others then
      if not pg_has_role(current_user, wanted, 'member') then
        raise exception '% must be a member of %', current_user, wanted
          using hint = format(
            'As an administrator: grant einvoice_service, einvoice_across to %I', current_user);
      end if;
    end;
  end loop;
end $$;

-- The first paragraph of the words is the comment of the table or view. Then follow lines with the
-- name of a column, a colon and its comment, which continues in lines with a deeper indentation. A
-- view has the comments of the columns with the same names of the table that it shows. Columns that
-- many tables or views have need no line.
create procedure describe(described regclass, words text, variadic shown regclass[] default '{}')
  language plpgsql as $$
declare
  kind text := case when (select relkind from pg_class where oid = described) = 'v' then 'view'
                    else 'table' end;
  texts text[] := regexp_split_to_array(coalesce(substring(words from '\n\n.*'), ''),
                                        '\n  (?=\w+: )');
  own record;
begin
  execute format('comment on %s %s is %L', kind, described,
                 btrim(regexp_replace(split_part(words, e'\n\n', 1), '\s+', ' ', 'g')));
  for own in
    select t.attname as name, usual.text
      from (values
        ('id', 'Identifies the row.'),
        ('company_id', 'Company that the row belongs to.'),
        ('account_id', 'Account that the row belongs to.'),
        ('owner_kind', 'company or account.'),
        ('owner_id', 'Id of the company or account.'),
        ('created_at', 'When the row was created.'),
        ('updated_at', 'When the row was last changed.'),
        ('is_submitted_to_portal', 'Whether the portal has it or is being sent it.'),
        ('legal_monetary_total', 'Totals as a JSON object.'),
        ('last_submission',
         'Outcome of the latest submission: status, code, message and time, and the reasons if '
         'nothing reached the portal. Null: never submitted.')) as usual (name, text)
      join pg_attribute t on t.attrelid = described and t.attname = usual.name
     union all
    select t.attname, col_description(s.attrelid, s.attnum)
      from pg_attribute s
      join pg_attribute t on t.attrelid = described and t.attname = s.attname
     where s.attrelid = any (shown) and s.attnum > 0 and not s.attisdropped
     union all
    select split_part(entry, ': ', 1),
           btrim(regexp_replace(substring(entry from ': (.*)'), '\s+', ' ', 'g'))
      from unnest(texts[2:]) as entry
  loop
    execute format('comment on column %s.%I is %L', described, own.name, own.text);
  end loop;
end $$;
comment on procedure describe is 'Comment on a table or view and its columns.';

create procedure publish(published regclass, words text, variadic shown regclass[] default '{}')
  language plpgsql as $$
begin
  execute format('grant select on %s to einvoice_service, einvoice_reader', published);
  call describe(published, words, variadic shown);
end $$;
comment on procedure publish is
  'Let the service and support staff read a view, and comment on it as describe() does.';

create procedure run_across_companies(named regproc, for_service boolean default true)
  language plpgsql as $$
begin
  -- Temporary tables last: else those of the caller would take the place of tables.
  execute format(
    'alter function %s security definer set search_path = pg_catalog, public, pg_temp', named);
  execute format('alter function %s owner to einvoice_across', named);
  execute format('revoke all on function %s from public', named);
  if for_service then
    execute format('grant execute on function %s to einvoice_service', named);
  end if;
end $$;
comment on procedure run_across_companies is
  'Let a function see the rows of all companies, and only the service execute it, or without '
  '`for_service` only other such functions.';

grant usage on schema public to einvoice_service, einvoice_across, einvoice_reader;
grant create on schema public to einvoice_across;
grant select on schema_migrations to einvoice_service, einvoice_reader;
call describe('schema_migrations', '
  Applied migrations. Written by the migrate command.

  name: File name of the migration.
  applied_at: When it was applied.
  compatible_with: Number of the newest migration of the oldest version of the service that runs
    after this one. Null: versions without this migration do not run after it.
  sha256: SHA-256 of the file as it was applied.
');

create function current_company() returns bigint
  stable parallel safe language sql
  return nullif(current_setting('app.company_id', true), '')::bigint;
comment on function current_company is
  'Company of this transaction. Null when none is set: then no tenant row is visible.';

create function current_account() returns bigint
  stable parallel safe language sql
  return nullif(current_setting('app.account_id', true), '')::bigint;
comment on function current_account is
  'Account of this transaction. Null when none is set: then no row of an account is visible.';

create function current_owner(kind text) returns bigint
  stable parallel safe language sql
  return case kind when 'company' then current_company() when 'account' then current_account() end;
comment on function current_owner is
  'Company or account of this transaction, by the kind of owner. Null when none is set.';

create procedure keep_apart(
    fenced regclass,
    rights text,
    own text default 'company_id = current_company()',
    has_secrets boolean default false,
    across text default null)
  language plpgsql as $$
begin
  execute format('alter table %s enable row level security', fenced);
  execute format('alter table %s force row level security', fenced);
  execute format(
    'create policy own_rows on %s to einvoice_service using (%s) with check (%2$s)', fenced, own);
  execute format(
    'create policy read_across on %s for select to einvoice_reader using (true)', fenced);
  execute format('grant %s on %s to einvoice_service', rights, fenced);
  if not has_secrets then
    execute format('grant select on %s to einvoice_reader', fenced);
  end if;
  if across is not null then
    execute format('create policy across_companies on %s to einvoice_across using (true)', fenced);
    execute format('grant %s on %s to einvoice_across', across, fenced);
  end if;
end $$;
comment on procedure keep_apart is
  'Isolate the rows of a table: the service has its `rights` on those only for which a condition '
  'holds, by default those of the current company. Support staff reads all, of a table with '
  'secrets only the columns that are granted. `across` are the rights of functions that run across '
  'companies.';

-- The counterpart in Python is service.documents.ubl.parties.get_own_tin.
create function normalised_tin(tin text) returns text
  immutable parallel safe language sql
  return regexp_replace(
    upper(tin collate "C"),
    '[\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200d\u2028'
    '\u2029\u202f\u205f\u2060\u3000\ufeff-]+',
    '',
    'g');
comment on function normalised_tin is
  'A TIN as it is sent to the portal: upper case, without white space and hyphens.';

create table schema_objects (
  file text primary key,
  sha256 bytea not null,
  applied_at timestamptz not null default clock_timestamp()
);
grant select on schema_objects to einvoice_reader;
call describe('schema_objects', '
  Applied views and functions. Written by the migrate command.

  file: File of the view or function, below sql/.
  sha256: SHA-256 of the file as it was applied.
  applied_at: When it was applied.
');

create table schema_versions (
  sha256 bytea primary key,
  applied_at timestamptz not null default clock_timestamp()
);
grant select on schema_versions to einvoice_service, einvoice_reader;
call describe('schema_versions', '
  Versions of all views, functions and migrations together. An older version of the service does
  not replace those of a newer one.

  sha256: SHA-256 of the file names and texts.
  applied_at: When the version was first applied.
');

create table companies (
  id bigint generated by default as identity primary key,
  name text not null,
  tin_code text not null,
  registration_number text,
  registration_type text,
  sst_registration_number text,
  tourism_tax_registration_number text,
  business_activity_description text,
  msic_code text,
  country text,
  state text,
  zip_code text,
  city text,
  address text,
  phone text,
  email text,
  bank_account text,
  exporter_certified_number text,
  setting jsonb not null default '{
    "INVOICE_PREFIX": "INV-", "SELF_BILLED_INVOICE_PREFIX": "SB-",
    "CONSOLIDATE_INVOICE_PREFIX": "CI-", "CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX": "CSB-",
    "CREDIT_NOTE_PREFIX": "CN-", "DEBIT_NOTE_PREFIX": "DN-", "REFUND_NOTE_PREFIX": "RN-",
    "PREFIX_DIGIT_COUNT": 5, "AUTO_SUBMIT_INVOICE": false}',
  default_tax_types_and_rates jsonb not null default '[]',
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  consolidation_relaxed_until date,
  tin text generated always as (normalised_tin(tin_code)) stored,
  tin_verified_at timestamptz,
  constraint companies_registration_type check
    (registration_type in ('BRN', 'NRIC', 'PASSPORT', 'ARMY'))
);
-- einvoice_across selects companies by their TIN, to hold their sending, and to compare them with
-- the portal. Only a verified TIN belongs to a company: see companies_of_tin() and
-- refuse_taken_tin().
call keep_apart(
  'companies', 'select, insert, update', 'id = current_company()',
  across => 'select (id, name, tin_code, tin, tin_verified_at)');
grant usage on sequence companies_id_seq to einvoice_service;
create index companies_by_tin_and_verification on companies (tin, tin_verified_at);
call describe('companies', '
  Companies, the tenants of the service. Written by operator commands and PUT /api/companies.
  A text that is not known yet is null.

  name: Registered name.
  tin_code: TIN as it was entered. Column tin holds the normalised form.
  registration_number: Business registration or identity number.
  registration_type: Kind of registration_number: BRN, NRIC, PASSPORT or ARMY.
  sst_registration_number: Sales and service tax number. Null: none.
  tourism_tax_registration_number: Tourism tax number. Null: none.
  business_activity_description: Business activity in words.
  msic_code: Five-digit code of the business activity.
  country: Country code of three letters, such as MYS.
  state: State code of the portal''s list.
  zip_code: Postcode.
  city: City.
  address: Street address.
  phone: Phone number.
  email: Email address.
  bank_account: Bank account number. No request and no command sets it.
  exporter_certified_number: Number of a certified exporter. No request and no command sets it.
  setting: Settings as the API shows them: prefixes of numbers, count of digits, automatic
    submission.
  default_tax_types_and_rates: Default taxes of line items, as the API shows them.
  consolidation_relaxed_until: Last day of sales to which the exclusions of consolidation do not
    apply. Null: they apply.
  tin: tin_code in the form in which it is sent to the portal and compared. Empty: none.
  tin_verified_at: When the operator confirmed that the TIN belongs to the company. Null: not
    verified, nothing is submitted.
');

create table accounts (
  id bigint generated by default as identity primary key,
  name text not null,
  created_at timestamptz not null default clock_timestamp(),
  constraint accounts_name_once unique (name)
);
call keep_apart('accounts', 'select, insert', 'id = current_account()', across => 'select');
grant usage on sequence accounts_id_seq to einvoice_service;
call describe('accounts', '
  Accounts of the integration surface. Written by operator commands.

  name: Unique name that the operator chose.
');

create function announce_api_key() returns trigger language plpgsql as $$
begin
  perform pg_notify('api_key_changed', old.key_id);
  return null;
end $$;
comment on function announce_api_key is 'Notify every process of a change to an API key.';

create table api_keys (
  owner_kind text not null,
  owner_id bigint not null,
  company_id bigint references companies
    generated always as (case owner_kind when 'company' then owner_id end) stored,
  account_id bigint references accounts
    generated always as (case owner_kind when 'account' then owner_id end) stored,
  key_id text not null,
  name text not null default '',
  secret_sha256 bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  primary key (owner_kind, owner_id, key_id),
  constraint api_keys_one_owner check (num_nonnulls(company_id, account_id) = 1)
);
create index api_keys_by_key_id on api_keys (key_id);
call keep_apart(
  'api_keys', 'insert, update (revoked_at, last_used_at)', 'owner_id = current_owner(owner_kind)',
  has_secrets => true, across => 'select');
grant select (
  owner_kind, owner_id, company_id, account_id, key_id, name, created_at, expires_at, revoked_at,
  last_used_at
) on api_keys to einvoice_service, einvoice_reader;
-- Processes keep keys in memory for as long as they are not notified.
create trigger announce after delete or update of secret_sha256, expires_at, revoked_at on api_keys
  for each row execute function announce_api_key();
call describe('api_keys', '
  API keys of companies and accounts. Written by the commands add-key, add-integration-key and
  revoke-key.

  company_id: The company. Null: an account.
  account_id: The account. Null: a company.
  key_id: Public part of the key, which is looked up.
  name: Name for people. Empty: none.
  secret_sha256: SHA-256 of the secret part. The secret itself is not stored.
  expires_at: When the key expires. Null: never.
  revoked_at: When the key was revoked. Null: it was not.
  last_used_at: When the key was last used, to the minute. Null: never.
');

-- Unlogged, so that counting a request does not wait for the disk. A crash of the database may
-- reset it.
create unlogged table key_quotas (
  owner_kind text not null,
  owner_id bigint not null,
  key_id text not null,
  ends_at timestamptz not null,
  used int not null,
  primary key (owner_kind, owner_id, key_id),
  foreign key (owner_kind, owner_id, key_id) references api_keys (owner_kind, owner_id, key_id)
) with (fillfactor = 50);
call keep_apart('key_quotas', 'select, insert, update', 'owner_id = current_owner(owner_kind)');
call describe('key_quotas', '
  Requests of each key in the current minute, counted for all processes.

  key_id: Key that is counted.
  ends_at: When the minute ends.
  used: Requests in this minute.
');

create table shared_tins (
  tin text primary key,
  note text not null,
  shared_at timestamptz not null default clock_timestamp(),
  constraint shared_tins_normalised check (tin = normalised_tin(tin) and tin <> ''),
  constraint shared_tins_note check (btrim(note) <> '')
);
grant select, insert, update, delete on shared_tins to einvoice_service;
grant select on shared_tins to einvoice_across, einvoice_reader;
call describe('shared_tins', '
  TINs that may be verified for several companies. Written by the commands share-tin and
  unshare-tin.

  tin: Normalised TIN, as companies.tin.
  note: Why the operator shares it.
  shared_at: When the operator shared it.
');

create table tin_checks (
  company_id bigint not null references companies,
  tin text not null,
  id_type text not null,
  id_value text not null,
  confirmed_at timestamptz not null,
  primary key (company_id, tin, id_type, id_value)
);
create index tin_checks_by_age on tin_checks (company_id, confirmed_at);
call keep_apart('tin_checks', 'select, insert, update, delete');
call describe('tin_checks', '
  TINs that the portal has confirmed for a company. Written after each check; old rows are
  deleted.

  tin: TIN that was asked about.
  id_type: Type of the identifier that was asked about. Empty: the TIN alone.
  id_value: Value of the identifier that was asked about. Empty: the TIN alone.
  confirmed_at: When the portal confirmed it last.
');

create table signing_certificates (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  certificate bytea not null,
  subject text not null,
  issuer_form text not null,
  not_before timestamptz not null,
  not_after timestamptz not null,
  sealed_key bytea,
  created_at timestamptz not null default clock_timestamp(),
  removed_at timestamptz,
  secret_key_id bytea generated always as (substring(sealed_key for 4)) stored,
  primary key (company_id, id),
  constraint signing_certificates_issuer_form check
    (issuer_form in ('rfc2253', 'encoded', 'rfc2253_blanks')),
  constraint signing_certificates_key_until_removed check
    ((sealed_key is null) = (removed_at is not null))
);
create unique index signing_certificates_one_live on signing_certificates (company_id)
  where removed_at is null;
call keep_apart(
  'signing_certificates', 'select, insert, update (sealed_key, removed_at)', has_secrets => true,
  across => 'select (company_id, id, sealed_key)');
grant select (
  company_id, id, certificate, subject, issuer_form, not_before, not_after, created_at, removed_at,
  secret_key_id
) on signing_certificates to einvoice_reader;
call describe('signing_certificates', '
  Certificates with which companies sign documents. A replaced certificate stays as history,
  without its key.

  certificate: X.509 certificate in DER.
  subject: Subject of the certificate as text, for people.
  issuer_form: How signatures write the name of the issuer.
  not_before: When the certificate becomes valid.
  not_after: When the certificate expires.
  sealed_key: Private key: id of the secret key (4 bytes), nonce (12), PKCS #8 in AES-256-GCM.
    Null: removed.
  removed_at: When the certificate was replaced or removed. Null: in use.
  secret_key_id: Id of the secret key that sealed the private key. Null: removed.
');

-- A company's own client at the portal, instead of the operator's. The secret is encrypted with
-- SECRET_KEY. Refused logins are kept apart by credentials, because anyone can enter any client id.
create table portal_credentials (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  tin text not null,
  client_id text not null,
  fingerprint text not null,
  sealed_secret bytea,
  created_at timestamptz not null default clock_timestamp(),
  removed_at timestamptz,
  primary key (company_id, id),
  constraint portal_credentials_secret_until_removed check
    ((sealed_secret is null) = (removed_at is not null))
);
create unique index portal_credentials_one_live on portal_credentials (company_id)
  where removed_at is null;
call keep_apart(
  'portal_credentials', 'select, insert, update (sealed_secret, removed_at)', has_secrets => true,
  across => 'select (company_id, id, tin, client_id, fingerprint, sealed_secret, removed_at)');
grant select (company_id, id, tin, client_id, created_at, removed_at) on portal_credentials
  to einvoice_reader;
call describe('portal_credentials', '
  Credentials with which companies log in to the portal themselves. Replaced ones stay as history,
  without their secret.

  tin: Normalised TIN that the portal issued them to. They are not used for another TIN.
  client_id: Client id at the portal.
  fingerprint: Short hash of the client id and its secret, as in refused_logins.
  sealed_secret: Client secret: id of the secret key (4 bytes), nonce (12), text in AES-256-GCM.
    Null: removed.
  created_at: When the credentials took effect.
  removed_at: When they were replaced or removed. Null: in use.
');

-- Cells: databases that each hold whole companies.
create table cells (
  only_one boolean primary key default true,
  name text not null,
  id_base bigint not null,
  constraint cells_only_one check (only_one),
  constraint cells_name check (name ~ '^[a-z][a-z0-9]{0,2}$')
);
grant select on cells to einvoice_service, einvoice_reader;
call describe('cells', '
  The cell that this database is. Empty: an installation without cells. Written by the migrate
  command.

  only_one: Always true: there is at most one row.
  name: Name of the cell, which its API keys contain.
  id_base: Number that is added to the ids of new companies, accounts and people, so that they
    differ from those of other cells.
');
