-- What each company signs with and until when, those that expire first at the top, and which secret key its own key
-- is sealed with: `signing_certificates` of one that is neither SECRET_KEY nor SECRET_KEY_PREVIOUS open no more.
--
--   psql "$DATABASE_URL" -f sql/inspect/signing_certificates.sql
--
-- Only a role that may step over the wall between companies sees anything here.

select s.company_id as company,
       c.name,
       s.subject,
       s.not_before,
       s.not_after,
       s.not_after - clock_timestamp() as expires_in,
       encode(substring(s.sealed_key for 4), 'hex') as secret_key
  from signing_certificates s
  join companies c on c.id = s.company_id
 where s.removed_at is null
 order by s.not_after, s.company_id;
