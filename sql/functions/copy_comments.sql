-- For a view that shows columns of a table under their names. The file of the view comments on its
-- other columns.
create or replace procedure copy_comments(source regclass, target regclass)
  language plpgsql set search_path = pg_catalog, public as $$
declare
  item record;
begin
  for item in
    select t.attname as name, col_description(source, s.attnum) as words
      from pg_attribute s
      join pg_attribute t on t.attrelid = target and t.attname = s.attname
     where s.attrelid = source and s.attnum > 0 and not s.attisdropped
  loop
    execute format('comment on column %s.%I is %L', target, item.name, item.words);
  end loop;
end $$;
comment on procedure copy_comments is
  'Copies the comments of the columns of a table to the columns of a view with the same names.';
