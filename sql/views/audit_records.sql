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
                      and k.key_id = case when a.actor like 'key %' then substr(a.actor, 5) end
  left join users u on u.id = case when a.actor ~ '^user [0-9]+$'
                                   then substr(a.actor, 6)::bigint end;
grant select on audit_records to einvoice_service, einvoice_reader;
call copy_comments('audit_log', 'audit_records');
comment on view audit_records is 'The audit log with the names of keys and people.';
comment on column audit_records.actor is 'Id of the API key or person, command, or background.';
comment on column audit_records.who is
  'The key with its name, the person with the email address, or the actor.';
comment on column audit_records.before_sha256 is
  'SHA-256 of the record before. Null: there was none, or it is not recorded.';
comment on column audit_records.after_sha256 is
  'SHA-256 of the record after. Null: there is none, or it is not recorded.';
comment on column audit_records.key_name is 'Name of the key. Empty: not a key, or none.';
comment on column audit_records.user_name is 'Name of the person. Empty: not a person.';
