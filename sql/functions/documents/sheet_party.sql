create or replace function sheet_party(party json) returns json
  immutable parallel safe language sql
  return json_build_object(
    'type', party -> 'type',
    'name', party -> 'name',
    'tin', party -> 'tin',
    'registration', party -> 'registration');
comment on function sheet_party is 'The members of a party that a list as CSV shows.';
