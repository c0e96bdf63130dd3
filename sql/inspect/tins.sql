-- TINs that are not verified, with the company for which they are, and TINs that may be verified
-- for several companies.
--
--   psql "$DATABASE_URL" -f sql/inspect/tins.sql
--
-- `python run.py verify-tin --company ID --tin TIN` verifies one.

select coalesce(c.tin, s.tin) as tin,
       c.id as company_id,
       c.name,
       c.tin_verified_at,
       (select min(v.id)
          from companies v
         where v.tin = c.tin and v.id <> c.id and v.tin_verified_at is not null) as verified_for,
       s.shared_at,
       s.note
  from companies c
  full join shared_tins s on s.tin = c.tin
 where c.tin_verified_at is null or s.tin is not null
 order by tin, company_id;
