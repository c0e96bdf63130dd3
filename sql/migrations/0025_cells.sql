-- compatible: 0020
-- Cells: databases that each hold whole companies. A company can be moved to another cell.

create table cells (
  only_one boolean primary key default true,
  name     text not null,
  id_base  bigint not null,
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

-- A company is active in a database that has its rows and no row here.
create table company_moves (
  company_id bigint primary key,
  state      text not null,
  cell       text not null,
  changed_at timestamptz not null default clock_timestamp(),
  constraint company_moves_state check (state in ('Draining', 'Held', 'Moved', 'Arriving'))
);
call keep_companies_apart('company_moves');
create policy across_companies on company_moves to einvoice_across using (true);
grant select on company_moves to einvoice_service, einvoice_across, einvoice_reader;
comment on table company_moves is
  'Companies that are being moved to or from another cell, or have been. Written by the command '
  'move-company.';
comment on column company_moves.company_id is 'Company that is moved.';
comment on column company_moves.state is
  'Draining: no new work begins. Held: nothing is written. Moved: it is active in the other cell, '
  'its rows here are old. Arriving: its rows are being copied to this database.';
comment on column company_moves.cell is 'Name of the other cell. Empty: it has no name.';
comment on column company_moves.changed_at is 'When the state was reached.';

create procedure leave_out_moves(claimed regclass) language plpgsql as $$
begin
  execute format(
    'create policy not_moving on %s as restrictive to einvoice_across using'
    ' (company_id <> all (array(select m.company_id'
    '                             from company_moves m'
    '                            where current_user = ''einvoice_across'')))',
    claimed);
end $$;
-- The owner of the tables is a member of einvoice_across, and copies the rows.
comment on procedure leave_out_moves is
  'Hide the rows of companies that are being moved, or have been, from the functions that look for '
  'work of all companies.';

create procedure pass_transactions(target bigint) language plpgsql as $$
begin
  while pg_current_xact_id()::text::bigint <= target loop
    rollback;
  end loop;
end $$;
revoke all on procedure pass_transactions from public;
comment on procedure pass_transactions is
  'Use up the ids of transactions up to a number, so that new events follow those that a company '
  'brings from another cell. See event_places().';

-- Keys of a company are found while it is moved. Holds on sending are put on all companies.
do $$
declare
  claimed regclass;
begin
  for claimed in
    select p.polrelid::regclass
      from pg_policy p
     where p.polname = 'across_companies'
       and p.polrelid <> all (array['api_keys', 'company_members', 'document_links',
                                    'sending_holds', 'company_moves']::regclass[])
     order by p.polrelid::regclass::text
  loop
    call leave_out_moves(claimed);
  end loop;
end $$;

-- People and links are found as long as the company can be read here.
create policy not_moved on company_members as restrictive to einvoice_across using
  (company_id <> all (array(select m.company_id
                              from company_moves m
                             where m.state in ('Moved', 'Arriving')
                               and current_user = 'einvoice_across')));
create policy not_moved on document_links as restrictive to einvoice_across using
  (company_id <> all (array(select m.company_id
                              from company_moves m
                             where m.state in ('Moved', 'Arriving')
                               and current_user = 'einvoice_across')));
