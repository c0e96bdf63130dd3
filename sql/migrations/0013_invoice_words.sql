-- The words of buyers' names, so that a search by name need not read all invoices of a company. An
-- index for a search inside of words would have operators that row-level security does not allow.

create function search_text(name text) returns text
  immutable parallel safe language sql
  return trim(regexp_replace(lower(name), '[[:space:]!-/:-@[-`{-~]+', ' ', 'g'));
comment on function search_text is
  'A text as it is searched: in lower case, with single spaces in place of punctuation.';

create table invoice_words (
  company_id bigint not null,
  word text collate "C" not null,
  invoice_id bigint not null,
  primary key (company_id, word, invoice_id)
);
call keep_companies_apart('invoice_words');
grant select, insert, delete on invoice_words to einvoice_service;
grant select on invoice_words to einvoice_reader;
comment on table invoice_words is
  'Words of the buyers'' names of invoices, also of deleted ones. Written by triggers.';
comment on column invoice_words.company_id is 'Company of the invoice.';
comment on column invoice_words.word is 'A word of search_text of the name.';
comment on column invoice_words.invoice_id is 'The invoice.';

create function add_invoice_words() returns trigger language plpgsql as $$
begin
  insert into invoice_words (company_id, word, invoice_id)
  select distinct company_id, word, id
    from inserted
   cross join lateral regexp_split_to_table(search_text(buyer ->> 'name'), ' ') word
   where word <> '';
  return null;
end $$;
comment on function add_invoice_words is 'Add the words of inserted invoices to invoice_words.';
create trigger add_invoice_words after insert on invoices referencing new table as inserted
  for each statement execute function add_invoice_words();

create function replace_invoice_words() returns trigger language plpgsql as $$
begin
  delete from invoice_words where company_id = new.company_id and invoice_id = new.id
     and word = any (string_to_array(search_text(old.buyer ->> 'name'), ' '));
  insert into invoice_words (company_id, word, invoice_id)
  select distinct new.company_id, word, new.id
    from regexp_split_to_table(search_text(new.buyer ->> 'name'), ' ') word
   where word <> '';
  return null;
end $$;
comment on function replace_invoice_words is
  'Replace the words of an invoice whose buyer''s name has changed.';
create trigger replace_invoice_words after update on invoices for each row
  when (old.buyer ->> 'name' is distinct from new.buyer ->> 'name')
  execute function replace_invoice_words();

insert into invoice_words (company_id, word, invoice_id)
select distinct company_id, word, id
  from invoices
 cross join lateral regexp_split_to_table(search_text(buyer ->> 'name'), ' ') word
 where word <> '';
