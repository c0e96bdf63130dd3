-- Fair shares of the portal's quotas, and the logins that the portal refused.

-- Whom each token was taken for, and who has recently been refused one. While others wait, one taxpayer gets a share of
-- a bucket; alone, it gets nearly all of it.
alter table portal_buckets
  add column takers        text[] not null default '{}',  -- the taxpayer of each token of `taken`; '' is not known
  add column waiting       text[] not null default '{}',  -- taxpayers that were refused a token
  add column waiting_until timestamptz[] not null default '{}';  -- until when each of them counts as waiting
update portal_buckets set takers = array_fill(''::text, array[cardinality(taken)]);
alter table portal_buckets
  add constraint portal_buckets_takers check (cardinality(takers) = cardinality(taken)),
  add constraint portal_buckets_waiting check (cardinality(waiting_until) = cardinality(waiting));
comment on column portal_buckets.taken is 'When each token was taken, oldest first; a promised token lies in the future.';
comment on column portal_buckets.takers is 'The taxpayer of each token of taken; an empty string is not known.';
comment on column portal_buckets.waiting is 'Taxpayers that were recently refused a token.';
comment on column portal_buckets.waiting_until is 'Until when each taxpayer of waiting counts as waiting.';

-- How many of `most` tokens one taxpayer may have while `others` wait: a third, rounded up, or less when they are many.
create function portal_share(most int, others bigint) returns int
  immutable parallel safe language sql
  return case when others < 3 then (most + 2) / 3 else greatest(1, most / (others + 1)::int) end;

-- Takes a token of a bucket for a taxpayer, or the promise of one: `wait` is how long until it is good. Nothing is taken
-- where the bucket's next token would take longer than `patience`, where the portal has asked to wait, or where the
-- taxpayer has its share; then `wait` is how long until it is worth asking again, and the taxpayer counts as waiting for
-- that long and `grace`. `is_share` when the bucket has a token sooner, so that only this taxpayer has to wait. A call is
-- let through that is at most the `most`-th within `span` and the `pace_most`-th within `pace_span`; a taxpayer that
-- nobody else waits with has at most `alone` of them within `span`. The bucket remembers its latest `size` tokens and at
-- most 100 waiting taxpayers. It is judged as it is once its row is locked.
create function take_portal_token(
    client text, asked text, bucket text, caller text, most int, span interval, pace_most int, pace_span interval,
    size int, alone int, patience interval, grace interval)
  returns table (is_taken boolean, wait interval, is_share boolean)
  volatile set search_path = pg_catalog, public language plpgsql as $$
declare
  b         portal_buckets;
  now_at    timestamptz;
  paused    timestamptz;
  others    bigint;  -- taxpayers that wait besides the caller
  others_at timestamptz;  -- when the last of them no longer counts as waiting
  own       timestamptz[];  -- the caller's tokens
  share_at  timestamptz;  -- when a share of a crowded bucket allows it another one
  own_at    timestamptz;  -- when its tokens allow it another one
  bucket_at timestamptz;  -- when the bucket allows another one
  again_at  timestamptz;
begin
  insert into portal_buckets (client_id, operation, taxpayer, taken)
  values (client, asked, bucket, '{}')
      on conflict do nothing;
  select * into strict b
    from portal_buckets p
   where p.client_id = client and p.operation = asked and p.taxpayer = bucket
     for update;
  now_at := clock_timestamp();

  select p.until into paused
    from portal_pauses p
   where p.client_id = client and p.operation = asked and p.until > now_at;
  if paused is not null then
    return query select false, paused - now_at, false;
    return;
  end if;

  select count(distinct o.name), max(o.until) into others, others_at
    from (select w.name, w.until from unnest(b.waiting, b.waiting_until) w (name, until)
          union all
          select t.name, t.at from unnest(b.takers, b.taken) t (name, at)) o
   where o.until > now_at and o.name <> caller;
  own := array(select t.at from unnest(b.takers, b.taken) t (name, at) where t.name = caller order by t.at);
  own_at := token_at(own, alone, span);
  share_at := token_at(own, least(alone, portal_share(most, others)), span);
  if others > 0 and share_at > now_at then
    own_at := greatest(own_at, least(share_at, others_at));
  end if;
  bucket_at := greatest(token_at(b.taken, most, span), token_at(b.taken, pace_most, pace_span));

  if own_at > now_at or bucket_at > now_at + patience then
    again_at := greatest(own_at, bucket_at);
    update portal_buckets p
       set (waiting, waiting_until) = (
             select array_agg(w.name), array_agg(w.until)
               from (select u.name, max(u.until) as until
                       from (select caller as name, again_at + grace as until
                             union all
                             select o.name, o.until from unnest(b.waiting, b.waiting_until) o (name, until)) u
                      where u.until > now_at
                      group by u.name
                      order by u.name = caller desc, max(u.until) desc
                      limit 100) w)
     where p.client_id = client and p.operation = asked and p.taxpayer = bucket;
    return query select false, again_at - now_at, coalesce(own_at > greatest(now_at, bucket_at), false);
    return;
  end if;

  bucket_at := greatest(now_at, bucket_at);
  update portal_buckets p
     set (taken, takers) = (
           select array_agg(t.at order by t.at, t.place), array_agg(t.name order by t.at, t.place)
             from (select u.at, u.name, u.place
                     from unnest(b.taken || bucket_at, b.takers || caller) with ordinality u (at, name, place)
                    order by u.at desc, u.place desc
                    limit size) t)
   where p.client_id = client and p.operation = asked and p.taxpayer = bucket;
  return query select true, bucket_at - now_at, false;
end
$$;
revoke all on function take_portal_token(text, text, text, text, int, interval, int, interval, int, int, interval, interval)
  from public;
grant execute on function take_portal_token(text, text, text, text, int, interval, int, interval, int, int, interval, interval)
  to einvoice_service;

-- Logins that the portal refused: while retry_at is in the future, no process logs in for the taxpayer. All processes share
-- it. It belongs to no company, as the client id does. A row counts only for the credentials that were refused.
create table refused_logins (
  client_id   text not null,
  taxpayer    text not null,  -- '' where the client logs in for itself
  fingerprint text not null,  -- of the client id and its secret: other credentials may be tried at once
  reason      text not null,  -- login: the login itself was refused; token: the token that it gave was
  message     text not null,  -- the portal's own words
  refusals    int not null,  -- since the last success
  since       timestamptz not null,  -- when the first of them was
  retry_at    timestamptz not null,  -- no login before
  is_trying   boolean not null default false,  -- a process has taken the next try up, and has until retry_at
  primary key (client_id, taxpayer),
  constraint refused_logins_reason check (reason in ('login', 'token'))
);
grant select, insert, update, delete on refused_logins to einvoice_service;
comment on table refused_logins is 'Logins that the portal refused. No process logs in for the taxpayer before retry_at.';
comment on column refused_logins.taxpayer is 'The TIN for which the client logs in; an empty string where it logs in for itself.';
comment on column refused_logins.fingerprint is 'A short hash of the client id and its secret. Other credentials may be tried at once.';
comment on column refused_logins.reason is 'login: the login was refused; token: the portal refused the token that it had just given.';
comment on column refused_logins.message is 'What the portal said.';
comment on column refused_logins.refusals is 'Refusals since the last success; each doubles the pause.';
comment on column refused_logins.since is 'When the first of these refusals was.';
comment on column refused_logins.retry_at is 'Until when no process logs in for the taxpayer.';
comment on column refused_logins.is_trying is 'A process makes the next try, and has until retry_at to say what came of it.';
