-- The rows may then be older than what was sent. They are those of one moment, which is not before
-- the latest comparison that they record: what was sent until then is recorded too. A comparison
-- records its time only in the noted database.
--
-- Nothing is missing on a standby that had to confirm every intent until evidence expires. Evidence
-- expires after 60 seconds for the process that made it, and 15 seconds later for those that send.
-- The process measures `age` after it has seen this database, so that a pause does not matter.
create or replace function record_database_identity(
    seen text default null, former text default null, evidence bigint default null,
    age interval default null)
  returns text
  volatile language plpgsql as $$
declare
  here text := public.database_identity();
  was public.database_state;
  is_lossless boolean;
begin
  insert into public.database_state default values on conflict do nothing;
  select * into was from public.database_state for update;
  if was.identity = here then
    return null;
  end if;
  -- A restore of the data alone keeps the row of the migrations, without an identity.
  if was.identity is null
     and not exists (select from public.submissions s where s.first_sent_at is not null) then
    update public.database_state set identity = here;
    return null;
  end if;
  is_lossless := seen = here
    and was.identity = former
    and was.evidence >= record_database_identity.evidence
    and age < interval '60 seconds'
    and was.guarded_until > clock_timestamp() + interval '15 seconds'
    and public.server_name() = any (was.standbys)
    and split_part(here, '/', 2) collate "C" > split_part(former, '/', 2)
    and regexp_replace(here, '/[^/]*', '') = regexp_replace(former, '/[^/]*', '');
  update public.database_state
     set identity = here,
         guarded_until = case when guarded_until is not null
                              then clock_timestamp() + interval '75 seconds' end;
  if is_lossless then
    return 'lossless';
  end if;
  perform public.hold_sending(
    'The database was restored, copied or failed over.',
    (select max(w.compared_at) from public.comparisons w where w.compared_at <= clock_timestamp()));
  return 'held';
end $$;
call run_across_companies('record_database_identity');
comment on function record_database_identity is
  'Record the identity of this database. If it was another one before, returns `held`, with '
  'sending held for all companies, or `lossless` if evidence of the caller shows that no send is '
  'missing. The evidence: the identity that it has seen, the one of its latest evidence, and its '
  'number and age.';
