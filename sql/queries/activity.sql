-- Who did what, for people.

-- name: activity_of :many
-- Return the audit log of a record, the latest first, with the names of keys and people.
select id, at, actor, action, subject, changes::text as changes, key_name, user_name
  from audit_records
 where company_id = :company_id and subject = :subject
 order by id desc
 limit 100;

-- name: activity_page :many
-- Return the audit log of a company, the latest first, before the entry :before.
select id, at, actor, action, subject, changes::text as changes, key_name, user_name
  from audit_records
 where company_id = :company_id and (:before::bigint is null or id < :before::bigint)
 order by id desc
 limit :most::bigint;
