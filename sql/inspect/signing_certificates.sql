-- The certificate of each company and its validity, those that expire first at the top, and the id
-- of the secret key that sealed its private key. Private keys that were sealed with neither
-- SECRET_KEY nor SECRET_KEY_PREVIOUS cannot be opened.
--
--   psql "$DATABASE_URL" -f sql/inspect/signing_certificates.sql

select s.company_id as company,
       c.name,
       s.subject,
       s.not_before,
       s.not_after,
       s.not_after - clock_timestamp() as expires_in,
       encode(s.secret_key_id, 'hex') as secret_key
  from signing_certificates s
  join companies c on c.id = s.company_id
 where s.removed_at is null
 order by s.not_after, s.company_id;
