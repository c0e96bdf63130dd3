-- The roles, the wall between companies, and how instants and codes are written.

-- einvoice_service: what the service runs as. It owns nothing and cannot step over the wall.
-- einvoice_across:  owns the few functions that must look across companies. Nobody logs in as it.
do $$
declare
  wanted text;
begin
  foreach wanted in array array['einvoice_service', 'einvoice_across'] loop
    begin
      execute format('create role %I nologin nosuperuser nobypassrls nocreatedb nocreaterole', wanted);
    exception when duplicate_object or unique_violation then
      null;  -- roles belong to the whole cluster; another database of it made this one
    end;
    begin
      execute format('grant %I to current_user', wanted);
    exception when others then
      if not pg_has_role(current_user, wanted, 'member') then
        raise exception '% must be a member of %', current_user, wanted
          using hint = format('As an administrator: grant einvoice_service, einvoice_across to %I', current_user);
      end if;
    end;
  end loop;
end $$;

grant usage on schema public to einvoice_service, einvoice_across;
grant create on schema public to einvoice_across;

-- The company of this transaction. Unset reads as null or '', and then no row is anybody's.
create function current_company() returns bigint
  stable parallel safe language sql
  return nullif(current_setting('app.company_id', true), '')::bigint;

-- Puts a table behind the wall: the service's role sees and writes rows of the current company only.
create procedure keep_companies_apart(fenced regclass, company_column name default 'company_id')
  language plpgsql as $$
begin
  execute format('alter table %s enable row level security', fenced);
  execute format('alter table %s force row level security', fenced);
  execute format(
    'create policy own_company on %s to einvoice_service using (%I = current_company()) with check (%I = current_company())',
    fenced, company_column, company_column);
end $$;

-- An instant as the API writes it: UTC, milliseconds, +00:00.
create function instant(at timestamptz) returns text
  stable parallel safe language sql
  return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"');

-- Prefix and code, zero-padded; a code longer than the digits is never cut.
create function full_code(prefix text, digits int, code bigint) returns text
  immutable parallel safe language sql
  return prefix || lpad(code::text, greatest(digits, length(code::text)), '0');
