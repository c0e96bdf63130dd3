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
