-- Webhook secrets are sealed as signing keys are, and all that is sealed can be sealed anew.

-- A secret that was stored before stays as it is, and signs, until a start with a SECRET_KEY seals it.
alter table webhook_secrets
  alter column secret drop not null,
  add column sealed_secret bytea,  -- which secret key sealed it (4 bytes), nonce (12), the secret in AES-256-GCM
  add constraint webhook_secrets_in_one_form check ((secret is null) <> (sealed_secret is null));
grant update (secret, sealed_secret) on webhook_secrets to einvoice_service;

-- The claim of 0013 with sealed secrets beside the others.
drop function claim_webhook_deliveries(interval, int);
create function claim_webhook_deliveries(lease interval, most int)
  returns table (company_id bigint, id bigint, endpoint_id bigint, fence bigint, step int, event_id bigint,
                 url text, secrets bytea[], sealed_secrets bytea[], body text)
  volatile security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan
  language plpgsql as $$
#variable_conflict use_column
declare
  free record;
begin
  for free in
    select e.company_id, e.id
      from public.webhook_endpoints e
     where e.enabled
       and (e.lease_until is null or e.lease_until < clock_timestamp())
       and exists (select
                     from public.webhook_deliveries d
                    where d.company_id = e.company_id and d.endpoint_id = e.id
                      and d.status = 'Pending' and d.next_attempt_at <= clock_timestamp())
     order by e.served_at
     limit most
       for update skip locked
  loop
    return query
      with tried as (
        update public.webhook_deliveries d
           set attempts = d.attempts + 1, step = d.step + 1, last_attempt_at = clock_timestamp()
         where d.company_id = free.company_id
           and d.id = (select o.id
                         from public.webhook_deliveries o
                        where o.company_id = free.company_id and o.endpoint_id = free.id
                          and o.status = 'Pending' and o.next_attempt_at <= clock_timestamp()
                        order by o.id
                        limit 1)
        returning d.company_id, d.id, d.endpoint_id, d.step, d.event_id
      ), claimed as (
        update public.webhook_endpoints e
           set fence = e.fence + 1, lease_until = clock_timestamp() + lease, served_at = clock_timestamp()
          from tried t
         where e.company_id = t.company_id and e.id = t.endpoint_id
        returning e.company_id, e.id, e.fence, e.url
      )
      select t.company_id, t.id, t.endpoint_id, c.fence, t.step, t.event_id, c.url,
             array(select s.secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id and s.endpoint_id = t.endpoint_id and s.secret is not null
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             array(select s.sealed_secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id and s.endpoint_id = t.endpoint_id and s.sealed_secret is not null
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             json_build_object('type', v.type, 'timestamp', public.instant(v.created_at), 'data', v.data)::text
        from tried t
        join claimed c on c.company_id = t.company_id and c.id = t.endpoint_id
        join public.events v on v.company_id = t.company_id and v.id = t.event_id;
  end loop;
end $$;
alter function claim_webhook_deliveries(interval, int) owner to einvoice_across;
revoke all on function claim_webhook_deliveries(interval, int) from public;
grant execute on function claim_webhook_deliveries(interval, int) to einvoice_service;

-- What is not sealed with the secret key of this version, whatever company it is of; where the version is null, what is
-- not sealed at all. Whoever may call this learns nothing without the key that sealed it.
create policy across_companies on signing_certificates to einvoice_across using (true);
grant select (company_id, id, sealed_key) on signing_certificates to einvoice_across;
create function secrets_to_seal(version bytea)
  returns table (company_id bigint, kind text, id bigint, secret bytea, sealed bytea)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select s.company_id, 'webhook secret', s.id, s.secret, s.sealed_secret
      from public.webhook_secrets s
     where s.sealed_secret is null or substring(s.sealed_secret for 4) <> version
    union all
    select c.company_id, 'signing key', c.id, null::bytea, c.sealed_key
      from public.signing_certificates c
     where substring(c.sealed_key for 4) <> version;
  end;
alter function secrets_to_seal(bytea) owner to einvoice_across;
revoke all on function secrets_to_seal(bytea) from public;
grant execute on function secrets_to_seal(bytea) to einvoice_service;
