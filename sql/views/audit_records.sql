create or replace view audit_records with (security_invoker = true) as
select a.id,
       a.company_id,
       a.account_id,
       a.at,
       a.actor,
       a.action,
       a.subject,
       case when k.key_id is not null then format('key %s (%s)', k.key_id, k.name)
            when u.id is not null then format('%s <%s>', u.name, u.email)
            else a.actor end as who,
       a.request_id,
       a.client_address,
       a.changes,
       a.before_sha256,
       a.after_sha256,
       coalesce(k.name, '') as key_name,
       coalesce(u.name, '') as user_name
  from audit_log a
  left join api_keys k on k.owner_kind = case when a.company_id is null then 'account'
                                              else 'company' end
                      and k.owner_id = coalesce(a.company_id, a.account_id)
                      and k.key_id = substring(a.actor from '^key (.*)$')
  left join users u on u.id = substring(a.actor from '^user ([0-9]+)$')::bigint;
call publish('audit_records', '
  The audit log with the names of keys and people.

  who: The key with its name, the person with the email address, or the actor.
  key_name: Name of the key. Empty: not a key, or none.
  user_name: Name of the person. Empty: not a person.
', 'audit_log');
