-- Totals of lists, also of those that are filtered by status and type. Triggers keep them, so that
-- no statement can forget to.

create table record_counts (
  company_id bigint not null,
  list text not null,
  status text not null,
  type text not null,
  slot smallint not null,
  live bigint not null,
  primary key (company_id, list, status, type, slot)
) with (fillfactor = 50);
call keep_companies_apart('record_counts');
grant select, insert, update on record_counts to einvoice_service;
grant select on record_counts to einvoice_reader;
comment on table record_counts is
  'Number of records that are not deleted, by status and type. Written by triggers. A total is the '
  'sum of its slots.';
comment on column record_counts.company_id is 'Company that is counted for.';
comment on column record_counts.list is
  'Table that is counted: invoices, adjustment_notes, consolidated_invoices or einvoice_requests.';
comment on column record_counts.status is 'Status of the counted records.';
comment on column record_counts.type is 'Type of the counted records. Empty: they have no type.';
comment on column record_counts.slot is
  'Number of the slot. Concurrent transactions of a company write to different ones.';
comment on column record_counts.live is 'Records added less those removed. May be negative.';

-- A transaction writes to one slot. If it waited for a slot of another one while it changes several
-- records, the two could wait for each other.
create function own_count_slot(company_id bigint) returns smallint
  language plpgsql as $$
begin
  for slot in 0 .. 99 loop
    if pg_try_advisory_xact_lock(hashint8(company_id), slot) then
      return slot;
    end if;
  end loop;
  perform pg_advisory_xact_lock(hashint8(company_id), 100);
  return 100;
end $$;
comment on function own_count_slot is
  'A slot of record_counts that no other transaction writes to until this one ends.';

create procedure keep_counts(counted regclass, type_column text) language plpgsql as $$
begin
  execute format($f$
    create function count_%1$s_inserted() returns trigger language plpgsql as $body$
    begin
      insert into record_counts as c (company_id, list, status, type, slot, live)
      select company_id, '%1$s', status, type, own_count_slot(company_id), count(*)
        from (select company_id, status, %2$s as type
                from inserted
               where deleted_at is null) record
       group by company_id, status, type
          on conflict (company_id, list, status, type, slot)
          do update set live = c.live + excluded.live;
      return null;
    end $body$
    $f$, counted, type_column);
  execute format($f$
    create function count_%1$s_changed() returns trigger language plpgsql as $body$
    begin
      insert into record_counts as c (company_id, list, status, type, slot, live)
      select company_id, '%1$s', status, %2$s, own_count_slot(company_id), change
        from (select old.*, -1 as change
              union all
              select new.*, 1) record
       where deleted_at is null
          on conflict (company_id, list, status, type, slot)
          do update set live = c.live + excluded.live;
      return null;
    end $body$
    $f$, counted, type_column);
  execute format(
    'comment on function count_%1$s_inserted is ''Count inserted records in record_counts.''',
    counted);
  execute format(
    'comment on function count_%1$s_changed is '
    '''Count a record whose status, type or deletion has changed in record_counts.''',
    counted);
  execute format(
    'create trigger counted_inserted after insert on %1$s'
    ' referencing new table as inserted'
    ' for each statement execute function count_%1$s_inserted()',
    counted);
  execute format(
    'create trigger counted_changed after update on %1$s'
    ' for each row'
    ' when ((old.status, %2$s, old.deleted_at) is distinct from (new.status, %3$s, new.deleted_at))'
    ' execute function count_%1$s_changed()',
    counted,
    case when type_column = '''''' then type_column else 'old.' || type_column end,
    case when type_column = '''''' then type_column else 'new.' || type_column end);
  execute format(
    'insert into record_counts (company_id, list, status, type, slot, live)'
    ' select company_id, ''%1$s'', status, type, 0, count(*)'
    ' from (select company_id, status, %2$s as type from %1$s where deleted_at is null) record'
    ' group by company_id, status, type',
    counted, type_column);
end $$;
comment on procedure keep_counts is
  'Count the records of a table in record_counts, from now on by triggers. `type_column` is the '
  'column of the type, or an empty text in quotes.';

call keep_counts('invoices', 'type');
call keep_counts('adjustment_notes', 'type');
call keep_counts('consolidated_invoices', 'type');
call keep_counts('einvoice_requests', '''''');

drop table invoice_counts, list_counts;
