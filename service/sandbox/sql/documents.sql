-- Documents and their submissions. No row is deleted before a reset.

-- name: submission_get :one
select taxpayer, client_id, received_at from documents where submission_uid = :uid limit 1;

-- name: submission_same_payload :value
-- Return when the taxpayer last sent the same body, if that was after :since.
select max(received_at)
  from documents
 where taxpayer = :taxpayer and payload_sha256 = :sha256 and received_at > :since;

-- name: document_insert :exec
insert into documents (
  uuid, submission_uid, payload_sha256, taxpayer, client_id, created_by, intermediary_tin,
  intermediary_name, number, type, version, issued_at, issuer_name, issuer_id, issuer_scheme,
  receiver_tin, receiver_id, receiver_scheme, receiver_name, supplier_tin, supplier_name, buyer_tin,
  buyer_name, total_excluding_tax, total_discount, total_net, total_payable, sha256, received_at,
  due_at, warnings, status
) values (
  :uuid, :submission_uid, :payload_sha256, :taxpayer, :client_id, :created_by, :intermediary_tin,
  :intermediary_name, :number, :type, :version, :issued_at, :issuer_name, :issuer_id,
  :issuer_scheme, :receiver_tin, :receiver_id, :receiver_scheme, :receiver_name, :supplier_tin,
  :supplier_name, :buyer_tin, :buyer_name, :total_excluding_tax, :total_discount, :total_net,
  :total_payable, :sha256, :received_at, :due_at, :warnings, 'Submitted'
);

-- name: body_insert :exec
insert into bodies (uuid, document) values (:uuid, :document);

-- name: body_get :value
select document from bodies where uuid = :uuid;

-- name: reference_insert :exec
insert into note_references (original_uuid, note_uuid)
values (:original_uuid, :note_uuid)
    on conflict do nothing;

-- name: reference_active :value
-- Return the number of Valid notes that refer to the document.
select count(*) from note_references r join documents d on d.uuid = r.note_uuid
 where r.original_uuid = :uuid and d.status = 'Valid';

-- name: document_get :one
select * from documents where uuid = :uuid;

-- name: document_of_submission :many
select * from documents where submission_uid = :uid order by sequence limit :size offset :skip;

-- name: submission_statuses :many
select status, count(*) as count from documents where submission_uid = :uid group by status;

-- name: document_due :many
-- Return documents whose validation has ended and is not recorded, in the order of its end.
select *
  from documents
 where status = 'Submitted' and due_at <= :now
 order by due_at, sequence
 limit :size;

-- name: document_plan :exec
-- Set a new end of validation for all unfinished documents, not before :now.
update documents
   set due_at = max(:now, received_at + :processing_seconds)
 where status = 'Submitted';

-- name: document_validated :exec
update documents
   set status = :status, validated_at = due_at, long_id = :long_id,
       validation_results = :validation_results
 where uuid = :uuid and status = 'Submitted';

-- name: document_duplicate :value
-- Return the oldest other document of the same identity that was processed after :since.
select uuid from documents
 where taxpayer = :taxpayer and number = :number and issued_at = :issued_at
   and type = :type and version = :version and uuid <> :uuid
   and validated_at > :since
 order by sequence limit 1;

-- name: document_cancel :exec
update documents set status = 'Cancelled', cancelled_at = :now, reason = :reason where uuid = :uuid;

-- name: document_reject :exec
update documents set reject_requested_at = :now, reason = :reason where uuid = :uuid;

-- name: document_page :many
-- Return documents, newest first: those that the taxpayer sent (with :client_id only, if given) and
-- those that it received. A null filter does not apply. The limits of a time span are Unix seconds,
-- the start included and the end excluded.
select *, count(*) over () as total from documents
 where ((:sent and taxpayer = :taxpayer and (:client_id is null or client_id = :client_id))
     or (:received and receiver_tin = :taxpayer and status in ('Valid', 'Cancelled')))
   and received_at <= :indexed_until
   and received_at >= coalesce(:received_from, received_at)
   and (:received_to is null or received_at < :received_to)
   and issued_at >= coalesce(:issued_from, issued_at)
   and (:issued_to is null or issued_at < :issued_to)
   and uuid = coalesce(:uuid, uuid)
   and status = coalesce(:status, status)
   and type = coalesce(:type, type)
   and receiver_id = coalesce(:receiver_id, receiver_id)
   and receiver_scheme = coalesce(:receiver_scheme, receiver_scheme)
   and receiver_tin = coalesce(:receiver_tin, receiver_tin)
   and issuer_id = coalesce(:issuer_id, issuer_id)
   and issuer_scheme = coalesce(:issuer_scheme, issuer_scheme)
   and taxpayer = coalesce(:issuer_tin, taxpayer)
   and (:text is null or instr(
          lower(uuid || ' ' || buyer_tin || ' ' || supplier_tin || ' ' || buyer_name || ' '
                || supplier_name || ' ' || number || ' ' || total_payable),
          lower(:text)) > 0)
 order by received_at desc, sequence desc limit :size offset :skip;

-- name: document_ledger :many
select * from documents
 where number = coalesce(:number, number) and taxpayer = coalesce(:taxpayer, taxpayer)
 order by sequence;

-- name: notification_page :many
-- Return what happened to the documents of a taxpayer, newest first: 7 validated and 15 rejection
-- initiated for the issuer, 6 received and 8 cancelled for the receiver. With :client_id only for
-- documents that this client sent. A null filter does not apply; the start of the time span is
-- included and its end excluded.
select sequence, uuid, number, type as document_type, issuer_name, at, kind,
       case when for_issuer then issuer_name else receiver_name end as receiver_name
  from (select *, '7' as kind, true as for_issuer, validated_at as at from documents
         union all
        select *, '15', true, reject_requested_at from documents
         union all
        select *, '6', false, validated_at from documents where status in ('Valid', 'Cancelled')
         union all
        select *, '8', false, cancelled_at from documents) as happened
 where at is not null
   and ((for_issuer and taxpayer = :taxpayer and client_id = coalesce(:client_id, client_id))
     or (not for_issuer and :received and receiver_tin = :taxpayer))
   and kind = coalesce(:kind, kind)
   and at >= coalesce(:since, at)
   and (:until is null or at < :until)
 order by at desc, sequence desc, cast(kind as integer) desc limit :size offset :skip;
