-- compatible: 0020
-- Holds of companies without API keys, comparisons that are retried with backoff, and the time
-- range that a hold needs.

-- einvoice_across selects companies to hold their sending and to compare them with the portal.
create policy across_companies on companies to einvoice_across using (true);

alter table sweeps
  add column failures int not null default 0,
  add column retry_at timestamptz;
comment on column sweeps.lease_until is
  'When the claim of the comparing process ends unless it is renewed. Null: not claimed.';
comment on column sweeps.failures is 'Comparisons that have failed since the latest complete one.';
comment on column sweeps.retry_at is
  'After a failure, when the next comparison may begin. Null: at any time.';

alter table sending_holds add column known_until timestamptz;
comment on column sending_holds.known_until is
  'A time before which the database has recorded everything that was sent. Null: not known.';
