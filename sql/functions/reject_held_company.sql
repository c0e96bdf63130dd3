-- The triggers that call it exist while a company is held, and only for its rows: see
-- `move_hold_commands`.
create or replace function reject_held_company() returns trigger
  language plpgsql as $$
begin
  raise exception using
    errcode = '57M01',
    message = format('the company is held for a move, so %s cannot be changed', tg_table_name);
end $$;
comment on function reject_held_company is
  'Trigger function: raises 57M01 for a row of a company that is held for a move, or was moved.';
