-- compatible: 0039
-- Why the seller rejected a request, and the secret by which its buyer sees what became of it.

alter table einvoice_requests
  add column rejection_reason text,
  add column secret_sha256 bytea;
comment on column einvoice_requests.rejection_reason is
  'Reason of the rejection, which the buyer sees. Null: not rejected, or no reason was given.';
comment on column einvoice_requests.secret_sha256 is
  'SHA-256 of the secret of the browser that made the request by a link. Null: made by the API.';
