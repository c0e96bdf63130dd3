-- The audit log. The statements that make a change write its rows; none can be changed.

-- name: audit_page :many
-- Return the last :most entries of a company, oldest first, each as JSON text.
select to_json(r)::text as entry
  from (select id, instant(at) as at, actor, action, subject, who, request_id,
               host(client_address) as client_address, changes,
               encode(before_sha256, 'hex') as before_sha256,
               encode(after_sha256, 'hex') as after_sha256
          from audit_records
         where company_id = :company_id
         order by id desc
         limit :most::bigint) r
 order by id;

-- name: activity_of :many
-- Return the audit log of a record, the latest first, with the names of keys and people.
select id, at, actor, action, subject, changes::text as changes, key_name, user_name,
       host(client_address) as client_address
  from audit_records
 where company_id = :company_id and subject = :subject
 order by id desc
 limit 100;

-- name: activity_page :many
-- Return the audit log of a company, the latest first, before the entry :before. The subject can be
-- a document, whose `code` it has and whose `has_page` is true unless it is deleted, or a person,
-- whose name a company learns when the person accepts a role in it.
with page as materialized (
  select id, at, actor, action, subject, changes::text as changes, key_name, user_name,
         host(client_address) as client_address,
         substring(subject from '^(?:invoice|adjustment note|consolidated invoice) ([0-9]{1,18})$')
           ::bigint as document_id,
         substring(subject from '^user ([0-9]{1,18})')::bigint as person_id
    from audit_records
   where company_id = :company_id and id < coalesce(:before::bigint, 9223372036854775807)
   order by id desc
   limit :most::bigint
)
select p.id, p.at, p.actor, p.action, p.subject, p.changes, p.key_name,
       case when p.action = 'refuse' then u.email else p.user_name end as user_name,
       p.client_address, d.code, d.deleted_at is null as has_page,
       case when m.accepted_at is null then u.email else u.name end as person
  from page p
  left join documents d
         on d.company_id = :company_id and d.id = p.document_id
        and document_name(d.kind, d.id) = p.subject
  left join users u on u.id = p.person_id
  left join company_members m on m.company_id = :company_id and m.user_id = p.person_id
 order by p.id desc;
