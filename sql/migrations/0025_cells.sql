-- compatible: 0020
-- Cells: databases that each hold whole companies.

create table cells (
  only_one boolean primary key default true,
  name text not null,
  id_base bigint not null,
  constraint cells_only_one check (only_one),
  constraint cells_name check (name ~ '^[a-z][a-z0-9]{0,2}$')
);
grant select on cells to einvoice_service, einvoice_reader;
comment on table cells is
  'The cell that this database is. Empty: an installation without cells. Written by the migrate '
  'command.';
comment on column cells.only_one is 'Always true: there is at most one row.';
comment on column cells.name is 'Name of the cell, which its API keys contain.';
comment on column cells.id_base is
  'Number that is added to the ids of new companies, accounts and people, so that they differ from '
  'those of other cells.';
