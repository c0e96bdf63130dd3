create or replace function searched_party(party json) returns text
  stable parallel safe language sql
  return nullif(
    search_text(concat_ws(' ', party ->> 'name', normalised_tin(party ->> 'tin'))), '');
comment on function searched_party is
  'Name and TIN of a party as searches compare them. Null without both.';
