-- Links by which people without an account see a document, or ask for an invoice in their name.

-- name: document_link_insert :one
-- Insert a link to a locked document, unless it has :most links that can be used.
with stored as (
  insert into document_links (company_id, token_sha256, purpose, kind, document_id, expires_at)
  select :company_id, :token_sha256, :purpose, :kind, :document_id,
         clock_timestamp() + :lifetime::interval
   where :most > (
           select count(*)
             from document_links
            where company_id = :company_id
              and revoked_at is null
              and expires_at > clock_timestamp()
              and document_id = :document_id)
  returning id, purpose, expires_at, kind, document_id
), audited as (
  insert into audit_log (company_id, action, subject, changes)
  select :company_id::bigint, 'share',
         document_name(kind, document_id),
         value_changes(null, jsonb_build_object('purpose', purpose, 'expires_at', expires_at))
    from stored
)
select id, instant(expires_at) as expires_at from stored;

-- name: document_link_lock :value
-- Lock a link and return its id. No row if it can no longer be used.
select id
  from document_links
 where company_id = :company_id and id = :id
   and revoked_at is null and expires_at > clock_timestamp()
   for no key update;

-- name: document_link_list :value
-- Return the links of a document that can be used, the latest first, as JSON text. Null if the
-- document does not exist.
select (select coalesce(json_agg(l order by l.id desc), '[]')
          from (select id, purpose, instant(created_at) as created_at,
                       instant(expires_at) as expires_at
                  from document_links
                 where company_id = :company_id
                   and revoked_at is null
                   and expires_at > clock_timestamp()
                   and document_id = :document_id) l)
  from documents d
 where d.company_id = :company_id and d.id = :document_id and d.kind = :kind
   and d.deleted_at is null;

-- name: document_link_revoke :value
-- Revoke a link of a document, which stops working at once, and return its id. No row if the
-- document has no such link that can be used.
with revoked as (
  update document_links
     set revoked_at = clock_timestamp()
   where company_id = :company_id
     and id = :id
     and revoked_at is null
     and expires_at > clock_timestamp()
     and document_id = :document_id
  returning id, kind, document_id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'unshare',
         document_name(kind, document_id)
    from revoked
)
select id from revoked;
