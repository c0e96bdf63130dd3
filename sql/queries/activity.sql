-- Who did what, for people.

-- name: activity_of :many
-- Return the audit log of a record, the latest first, with the names of keys and people.
select a.id, a.at, a.actor, a.action, a.subject,
       coalesce(k.name, '') as key_name, coalesce(u.name, '') as user_name
  from audit_log a
  left join api_keys k on k.company_id = :company_id and a.actor = 'key ' || k.key_id
  left join users u on a.actor = 'user ' || u.id
 where a.company_id = :company_id and a.subject = :subject
 order by a.id desc
 limit 100;

-- name: activity_page :many
-- Return the audit log of a company, the latest first, before the entry :before.
select a.id, a.at, a.actor, a.action, a.subject,
       coalesce(k.name, '') as key_name, coalesce(u.name, '') as user_name
  from audit_log a
  left join api_keys k on k.company_id = :company_id and a.actor = 'key ' || k.key_id
  left join users u on a.actor = 'user ' || u.id
 where a.company_id = :company_id and (:before::bigint is null or a.id < :before::bigint)
 order by a.id desc
 limit :most::bigint;
