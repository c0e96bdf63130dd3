-- Links by which people without an account see a document, or ask for an invoice in their name.

-- name: document_link_of :one
-- Return the link with a token, if it can be used.
select company_id, id, purpose, invoice_id, adjustment_note_id, consolidated_invoice_id
  from document_link_of(:token_sha256);

-- name: document_link_insert :exec
with stored as (
  insert into document_links (company_id, token_sha256, purpose, invoice_id, adjustment_note_id,
                              consolidated_invoice_id, expires_at)
  values (:company_id, :token_sha256, :purpose, :invoice_id, :adjustment_note_id,
          :consolidated_invoice_id, clock_timestamp() + :lifetime::interval)
  returning invoice_id, adjustment_note_id, consolidated_invoice_id, purpose, expires_at
)
insert into audit_log (company_id, action, subject, changes)
select :company_id::bigint, 'share',
       document_name(invoice_id, adjustment_note_id, consolidated_invoice_id),
       value_changes(null, jsonb_build_object('purpose', purpose, 'expires_at', expires_at))
  from stored;

-- name: document_link_list :many
-- Return the links of a document that can be used, the latest first.
select id, purpose, created_at, expires_at
  from document_links
 where company_id = :company_id
   and revoked_at is null
   and expires_at > clock_timestamp()
   and (invoice_id = :invoice_id
        or adjustment_note_id = :adjustment_note_id
        or consolidated_invoice_id = :consolidated_invoice_id)
 order by id desc;

-- name: document_link_revoke :exec
-- Revoke a link, which stops working at once.
with revoked as (
  update document_links
     set revoked_at = clock_timestamp()
   where company_id = :company_id and id = :id and revoked_at is null
  returning invoice_id, adjustment_note_id, consolidated_invoice_id
)
insert into audit_log (company_id, action, subject)
select :company_id::bigint, 'unshare',
       document_name(invoice_id, adjustment_note_id, consolidated_invoice_id)
  from revoked;
