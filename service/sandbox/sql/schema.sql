-- State of the sandbox. Instants are Unix seconds of the sandbox clock; amounts are decimal text.

create table if not exists state (  -- The one row of what the administration API has changed.
  id integer primary key,  -- 1.
  value text not null  -- Value as JSON.
);

create table if not exists tokens (  -- Issued access tokens.
  token text primary key,  -- Access token.
  client_id text not null,  -- Client that logged in.
  taxpayer text not null,  -- Taxpayer that requests with the token act for.
  represented integer not null,  -- 1: issued to an intermediary for this taxpayer.
  expires_at real not null  -- When the token expires; 0: it was revoked.
);

create table if not exists documents (  -- Every accepted document. None is deleted before a reset.
  sequence integer primary key autoincrement,  -- Order of acceptance.
  uuid text not null unique,  -- Id of the document.
  submission_uid text not null,  -- Submission that contained it.
  payload_sha256 text not null,  -- SHA-256 of the body of the submission, in hexadecimal.
  taxpayer text not null,  -- TIN of the issuer.
  client_id text not null,  -- Client that sent it.
  created_by text not null,  -- Submitter as the portal shows it.
  intermediary_tin text,  -- TIN of the intermediary; null: none.
  intermediary_name text,  -- Name of the intermediary; null: none.
  number text not null,  -- Number that the issuer gave it.
  type text not null,  -- Code of the document type.
  version text not null,  -- Version of the document type.
  issued_at real not null,  -- Time of issue in the document.
  issuer_name text not null,  -- Name of the issuer.
  receiver_tin text not null,  -- TIN of the receiver.
  receiver_id text not null,  -- Identifier of the receiver.
  receiver_scheme text not null,  -- Type of receiver_id.
  receiver_name text not null,  -- Name of the receiver.
  issuer_id text not null,  -- Identifier of the issuer.
  issuer_scheme text not null,  -- Type of issuer_id.
  supplier_tin text not null,  -- TIN of the supplier.
  supplier_name text not null,  -- Name of the supplier.
  buyer_tin text not null,  -- TIN of the buyer.
  buyer_name text not null,  -- Name of the buyer.
  total_excluding_tax text not null,  -- Total without tax.
  total_discount text not null,  -- Sum of all discounts.
  total_net text not null,  -- Net amount.
  total_payable text not null,  -- Amount to pay.
  sha256 text not null,  -- SHA-256 of the document, in hexadecimal.
  received_at real not null,  -- When it was received.
  due_at real not null,  -- When its validation ends.
  warnings text not null,  -- Problems with which it was accepted nevertheless, as JSON.
  status text not null,  -- Submitted, Valid, Invalid or Cancelled.
  validated_at real,  -- When it was validated; null: not yet.
  long_id text not null default '',  -- Long id; empty: not valid.
  validation_results text,  -- Results as JSON; null: not validated yet.
  cancelled_at real,  -- When it was cancelled; null: it was not.
  reject_requested_at real,  -- When the buyer requested rejection; null: never.
  reason text  -- Of the cancellation or rejection; null: none.
);
create index if not exists documents_submission on documents (submission_uid, sequence);
create index if not exists documents_due on documents (due_at, sequence)
  where status = 'Submitted';
create index if not exists documents_identity on documents (taxpayer, number, issued_at);
create index if not exists documents_payload
  on documents (taxpayer, payload_sha256, received_at);
create index if not exists documents_received on documents (received_at);

create table if not exists bodies (  -- Bytes of the accepted documents.
  uuid text primary key,  -- Document.
  document blob not null  -- Bytes as they were submitted.
);

create table if not exists note_references (  -- References of notes to the documents they adjust.
  original_uuid text not null,  -- Document that is adjusted.
  note_uuid text not null,  -- Note.
  primary key (original_uuid, note_uuid)
);

create table if not exists quotas (  -- Requests in the current period of each rate limit.
  name text not null,  -- Name of the rate limit.
  subject text not null,  -- Client or taxpayer that is limited.
  started_at real not null,  -- When the period began.
  used integer not null,  -- Requests in the period.
  primary key (name, subject)
);

create table if not exists requests (  -- Counts of requests and responses by operation.
  operation text not null,  -- Operation.
  status text not null,  -- HTTP status, `dropped` without a response; empty: all requests.
  count integer not null,  -- Number of them.
  last_at real not null,  -- When the latest was counted.
  primary key (operation, status)
);
