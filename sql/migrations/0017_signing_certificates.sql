-- What companies sign their documents with. A replaced certificate stays as history; its key goes.

create table signing_certificates (
  company_id  bigint not null references companies,
  id          bigint generated always as identity,
  certificate bytea not null,  -- X.509, DER
  subject     text not null,   -- the same for a reader of this table
  issuer_form text not null,   -- how signatures write the name of its issuer
  not_before  timestamptz not null,
  not_after   timestamptz not null,
  sealed_key  bytea,           -- which secret key sealed it (4 bytes), nonce (12), PKCS #8 in AES-256-GCM
  created_at  timestamptz not null default clock_timestamp(),
  removed_at  timestamptz,
  primary key (company_id, id),
  constraint signing_certificates_issuer_form check (issuer_form in ('rfc2253', 'encoded', 'rfc2253_blanks')),
  constraint signing_certificates_key_until_removed check ((sealed_key is null) = (removed_at is not null))
);
create unique index signing_certificates_one_live on signing_certificates (company_id) where removed_at is null;
call keep_companies_apart('signing_certificates');
grant select, insert, update (sealed_key, removed_at) on signing_certificates to einvoice_service;
