-- A company's own client at the portal, instead of the operator's. The secret is encrypted with
-- SECRET_KEY. Refused logins are kept apart by credentials, because anyone can enter any client id.

create table portal_credentials (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  tin text not null,
  client_id text not null,
  fingerprint text not null,
  sealed_secret bytea,
  created_at timestamptz not null default clock_timestamp(),
  removed_at timestamptz,
  primary key (company_id, id),
  constraint portal_credentials_secret_until_removed check
    ((sealed_secret is null) = (removed_at is not null))
);
create unique index portal_credentials_one_live on portal_credentials (company_id)
  where removed_at is null;
call keep_companies_apart('portal_credentials');
grant select, insert, update (sealed_secret, removed_at) on portal_credentials
  to einvoice_service;
create policy across_companies on portal_credentials to einvoice_across using (true);
grant select (company_id, id, tin, client_id, fingerprint, sealed_secret, removed_at)
  on portal_credentials to einvoice_across;
grant select (company_id, id, tin, client_id, created_at, removed_at) on portal_credentials
  to einvoice_reader;
comment on table portal_credentials is
  'Credentials with which companies log in to the portal themselves. Replaced ones stay as '
  'history, without their secret.';
comment on column portal_credentials.company_id is 'Company that logs in.';
comment on column portal_credentials.id is 'Identifies the credentials.';
comment on column portal_credentials.tin is
  'Normalised TIN that the portal issued them to. They are not used for another TIN.';
comment on column portal_credentials.client_id is 'Client id at the portal.';
comment on column portal_credentials.fingerprint is
  'Short hash of the client id and its secret, as in refused_logins.';
comment on column portal_credentials.sealed_secret is
  'Client secret: id of the secret key (4 bytes), nonce (12), text in AES-256-GCM. Null: removed.';
comment on column portal_credentials.created_at is 'When the credentials took effect.';
comment on column portal_credentials.removed_at is
  'When they were replaced or removed. Null: in use.';

alter table refused_logins drop constraint refused_logins_pkey,
  add primary key (client_id, taxpayer, fingerprint);

-- The links of notes and of consolidated invoices, as document_links_by_invoice.
create index document_links_by_note on document_links (company_id, adjustment_note_id, id)
  where adjustment_note_id is not null;
create index document_links_by_consolidated_invoice
  on document_links (company_id, consolidated_invoice_id, id)
  where consolidated_invoice_id is not null;
