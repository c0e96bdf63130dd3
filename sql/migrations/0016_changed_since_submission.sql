-- A cancelled invoice or note is sent again only if it was changed, or if the client insists: a
-- late repetition of a request must not issue a second document.

alter table invoices add column is_changed boolean not null default false;
alter table adjustment_notes add column is_changed boolean not null default false;
comment on column invoices.is_changed is
  'Whether it was updated since its last submission. False before the first one.';
comment on column adjustment_notes.is_changed is
  'Whether it was updated since its last submission. False before the first one.';
