-- A sighting is kept once for each way in which it was made. With the earlier key a uuid that was first read from a damaged
-- response, or seen without a proof, could not be recorded as proven later, and its document seemed to be absent.
alter table portal_sightings
  drop constraint portal_sightings_pkey,
  add constraint portal_sightings_pkey primary key (company_id, submission_id, uuid, via);

-- The unknown outcomes of one taxpayer. A TIN belongs to few companies, and PostgreSQL multiplies the selectivities of
-- columns that it takes for independent: without this index and these statistics it reads all submissions of the TIN.
create index submissions_uncertain_of_tin on submissions (company_id, tin, id) where state = 'Uncertain';
create statistics submissions_company_and_tin (dependencies) on company_id, tin from submissions;
