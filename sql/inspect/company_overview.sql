-- Every company: its valid keys, its invoices by status, and the difference between the maintained
-- count and the true one.
--
--   psql "$DATABASE_URL" -f sql/inspect/company_overview.sql
--
-- Reads all invoices, so do not run it every minute.

select c.id as company,
       c.name,
       c.tin_code as tin,
       (select count(*)
          from api_keys k
         where k.owner_kind = 'company' and k.owner_id = c.id and k.revoked_at is null
           and (k.expires_at is null or k.expires_at > clock_timestamp())) as keys,
       (select max(k.last_used_at)
          from api_keys k
         where k.owner_kind = 'company' and k.owner_id = c.id) as last_used,
       i.invoices,
       (select coalesce(sum(n.live), 0)
          from record_counts n
         where n.company_id = c.id and n.list = 'invoice') - i.invoices as count_off_by,
       i.draft,
       i.submitting,
       i.submitted,
       i.valid,
       i.invalid,
       i.cancelled,
       i.deleted
  from companies c
 cross join lateral (
         select count(*) filter (where deleted_at is null) as invoices,
                count(*) filter (where deleted_at is null and status = 'Draft') as draft,
                count(*) filter (where deleted_at is null and status = 'Submitting') as submitting,
                count(*) filter (where deleted_at is null and status = 'Submitted') as submitted,
                count(*) filter (where deleted_at is null and status = 'Valid') as valid,
                count(*) filter (where deleted_at is null and status = 'Invalid') as invalid,
                count(*) filter (where deleted_at is null and status = 'Cancelled') as cancelled,
                count(*) filter (where deleted_at is not null) as deleted
           from document_states
          where company_id = c.id and kind = 'invoice') i
 order by c.id;
