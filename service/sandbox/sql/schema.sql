-- All state of the sandbox. Instants are Unix seconds of the sandbox clock; amounts are decimal text.

create table if not exists settings (
  name  text primary key,
  value text not null  -- JSON
);

create table if not exists taxpayers (
  tin     text primary key,
  name    text not null,
  blocked integer not null default 0
);

create table if not exists identities (
  tin   text not null references taxpayers,
  type  text not null,
  value text not null,
  primary key (tin, type, value)
);

create table if not exists clients (
  client_id     text primary key,
  client_secret text not null,
  tin           text not null,
  intermediary  integer not null,  -- may name a taxpayer in onbehalfof
  represents    text,              -- JSON list of TINs; null: any well-formed TIN
  blocked       integer not null default 0
);

create table if not exists tokens (
  token       text primary key,
  client_id   text not null,
  taxpayer    text not null,
  represented integer not null,    -- issued to an intermediary for this taxpayer
  expires_at  real not null
);

create table if not exists submissions (
  uid         text primary key,
  taxpayer    text not null,
  client_id   text not null,
  sha256      text not null,       -- of the request body
  received_at real not null
);
create index if not exists submissions_payload on submissions (taxpayer, sha256, received_at);

create table if not exists documents (
  sequence            integer primary key autoincrement,
  uuid                text not null unique,
  submission_uid      text not null,
  taxpayer            text not null,   -- the issuer's TIN
  client_id           text not null,
  created_by          text not null,
  intermediary_tin    text,
  intermediary_name   text,
  number              text not null,
  type                text not null,
  version             text not null,
  issued_at           real not null,
  issuer_name         text not null,
  receiver_tin        text not null,
  receiver_id         text not null,
  receiver_scheme     text not null,
  receiver_name       text not null,
  issuer_id           text not null,
  issuer_scheme       text not null,
  supplier_tin        text not null,
  supplier_name       text not null,
  buyer_tin           text not null,
  buyer_name          text not null,
  total_excluding_tax text not null,
  total_discount      text not null,
  total_net           text not null,
  total_payable       text not null,
  sha256              text not null,
  received_at         real not null,
  due_at              real not null,   -- when validation is over
  status              text not null,
  validated_at        real,
  long_id             text not null default '',
  validation_results  text,            -- JSON
  cancelled_at        real,
  reject_requested_at real,
  reason              text
);
create index if not exists documents_submission on documents (submission_uid, sequence);
create index if not exists documents_due on documents (due_at, sequence) where status = 'Submitted';
create index if not exists documents_identity on documents (taxpayer, number, issued_at);
create index if not exists documents_received on documents (received_at);

create table if not exists bodies (
  uuid     text primary key,
  document blob not null               -- the bytes as they were submitted
);

create table if not exists note_references (
  original_uuid text not null,
  note_uuid     text not null,
  primary key (original_uuid, note_uuid)
);

-- Codes that hold only for a time; a null end is open.
create table if not exists codes (
  list        text not null,
  code        text not null,
  active_from real,
  active_to   real,
  primary key (list, code)
);

-- What was found odd in a document that was accepted all the same.
create table if not exists warnings (
  uuid  text primary key,
  found text not null                  -- JSON
);

create table if not exists faults (
  id        integer primary key autoincrement,
  operation text not null,
  kind      text not null,
  remaining integer not null,
  number    text,
  members   text not null              -- JSON: what the kind needs
);

-- How many faults met a call, by the label of their order.
create table if not exists served (
  label text primary key,
  count integer not null
);

create table if not exists quotas (
  name       text not null,
  subject    text not null,
  started_at real not null,
  used       integer not null,
  primary key (name, subject)
);

create table if not exists calls (
  operation text primary key,
  count     integer not null,
  last_at   real not null
);

create table if not exists answers (
  operation text not null,
  status    text not null,
  count     integer not null,
  primary key (operation, status)
);
