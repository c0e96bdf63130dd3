-- The logins of the service, for an empty database. Run once as a superuser:
--
--   OWNER_PASSWORD_FILE=... APP_PASSWORD_FILE=... psql -d einvoice -f deploy/postgres/roles.sql
--
-- The owner migrates. The app is the service: it owns nothing and is bound by row-level security.

\set ON_ERROR_STOP on
\if :{?owner} \else
  \set owner einvoice_owner
  \set app einvoice_app
\endif
\set owner_password `cat "$OWNER_PASSWORD_FILE"`
\set app_password `cat "$APP_PASSWORD_FILE"`

-- The roles of the migrations. They belong to the server and may exist already.
select format('create role %I nologin', name)
  from unnest(array['einvoice_service', 'einvoice_across', 'einvoice_reader']) name
 where not exists (select from pg_roles where rolname = name)
\gexec

create role :"owner" login createrole password :'owner_password';
grant einvoice_service, einvoice_across to :"owner" with admin option;
create role :"app" login in role einvoice_service password :'app_password';

alter database :"DBNAME" owner to :"owner";
revoke all on database :"DBNAME" from public;
grant connect on database :"DBNAME" to einvoice_service, einvoice_reader;
