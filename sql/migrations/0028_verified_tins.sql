-- compatible: 0020
-- Only a verified TIN belongs to a company. See companies_of_tin() and refuse_taken_tin().

grant select (tin_verified_at) on companies to einvoice_across;
-- PostgreSQL sets the time and the transaction.
grant insert (company_id, type, data) on events to einvoice_across;

create index companies_by_tin_and_verification on companies (tin, tin_verified_at);
drop index companies_by_tin;

comment on table shared_tins is
  'TINs that may be verified for several companies. Written by the commands share-tin and '
  'unshare-tin.';
