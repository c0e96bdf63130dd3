-- A request is let through if it is at most the `most`-th within `span` and the `pace_most`-th
-- within `pace_span`. A taxpayer has at most `alone` of them within `alone_span`, and its share
-- within `span` while others wait.
--
-- No token is taken if the bucket's next one takes longer than `patience`, if the portal has asked
-- to wait, or if the taxpayer has its share. Then `wait` is the time until the next try, and the
-- taxpayer counts as waiting for that long plus `grace`. `is_share` means that the bucket has a
-- token sooner, so that only this taxpayer has to wait.
--
-- `priority` is 1 for requests that come before all others. After a request that got no token, the
-- next one of its priority is expected when it is due, plus `grace`; after a request that got one,
-- for `follows`, if it is not null. Requests of lower priorities get no token meanwhile.
--
-- The bucket keeps its latest `size` tokens and at most 100 waiting taxpayers. Everything is
-- decided after its row is locked.
create or replace function take_portal_token(
    client text, asked text, bucket text, caller text, most int, span interval, pace_most int,
    pace_span interval, size int, alone int, alone_span interval, patience interval, grace interval,
    priority int, follows interval)
  returns table (is_taken boolean, wait interval, is_share boolean)
  volatile rows 1 language plpgsql as $$
declare
  b portal_buckets;
  now_at timestamptz;
  paused timestamptz;
  yields_to timestamptz;  -- until when a request of a higher priority is expected
  others bigint;  -- other taxpayers that wait
  others_at timestamptz;  -- when the last of them stops waiting
  own timestamptz[];  -- the caller's tokens
  share int;  -- how many it may have while others wait: a third, rounded up, or less for many
  share_at timestamptz;  -- when its share of a contended bucket allows another token
  own_at timestamptz;  -- when the caller's limit allows another token
  bucket_at timestamptz;  -- when the bucket allows another token
  again_at timestamptz;
begin
  insert into portal_buckets (client_id, operation, taxpayer)
  values (client, asked, bucket)
      on conflict do nothing;
  select * into strict b
    from portal_buckets p
   where p.client_id = client and p.operation = asked and p.taxpayer = bucket
     for update;
  now_at := clock_timestamp();

  select p.paused_until into paused
    from portal_buckets p
   where p.client_id = client and p.operation = asked and p.taxpayer = ''
     and p.paused_until > now_at;
  if paused is not null then
    return query select false, paused - now_at, false;
    return;
  end if;

  yields_to := (select max(e.until) from unnest(b.expected_until[:priority - 1]) e (until));
  if yields_to > now_at then
    return query select false, yields_to - now_at, true;
    return;
  end if;

  select count(distinct o.name), max(o.until) into others, others_at
    from (select w.name, w.until from unnest(b.waiting, b.waiting_until) w (name, until)
          union all
          select t.name, t.at from unnest(b.takers, b.taken) t (name, at)) o
   where o.until > now_at and o.name <> caller;
  own := array(
    select t.at
      from unnest(b.takers, b.taken) t (name, at)
     where t.name = caller
     order by t.at);
  own_at := token_at(own, alone, alone_span);
  share := case when others < 3 then (most + 2) / 3 else greatest(1, most / (others + 1)::int) end;
  share_at := token_at(own, share, span);
  if others > 0 and share_at > now_at then
    own_at := greatest(own_at, least(share_at, others_at));
  end if;
  bucket_at := greatest(token_at(b.taken, most, span), token_at(b.taken, pace_most, pace_span));

  if own_at > now_at or bucket_at > now_at + patience then
    again_at := greatest(own_at, bucket_at);
    b.expected_until[priority] := greatest(b.expected_until[priority], again_at + grace);
    update portal_buckets p
       set expected_until = b.expected_until, (waiting, waiting_until) = (
             select array_agg(w.name), array_agg(w.until)
               from (select u.name, max(u.until) as until
                       from (select caller as name, again_at + grace as until
                             union all
                             select o.name, o.until
                               from unnest(b.waiting, b.waiting_until) o (name, until)) u
                      where u.until > now_at
                      group by u.name
                      order by u.name = caller desc, max(u.until) desc
                      limit 100) w)
     where p.client_id = client and p.operation = asked and p.taxpayer = bucket;
    return query
      select false, again_at - now_at, coalesce(own_at > greatest(now_at, bucket_at), false);
    return;
  end if;

  bucket_at := greatest(now_at, bucket_at);
  b.expected_until[priority] := greatest(b.expected_until[priority], bucket_at + follows);
  update portal_buckets p
     set expected_until = b.expected_until, (taken, takers) = (
           select array_agg(t.at order by t.at, t.place), array_agg(t.name order by t.at, t.place)
             from (select u.at, u.name, u.place
                     from unnest(b.taken || bucket_at, b.takers || caller)
                          with ordinality u (at, name, place)
                    order by u.at desc, u.place desc
                    limit size) t)
   where p.client_id = client and p.operation = asked and p.taxpayer = bucket;
  return query select true, bucket_at - now_at, false;
end
$$;
comment on function take_portal_token is
  'Take a token of a rate limit bucket for a taxpayer, or the promise of one. `wait` is the time '
  'until it is valid or until the next try.';
