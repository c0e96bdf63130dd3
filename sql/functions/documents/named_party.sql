create or replace function named_party(party jsonb) returns jsonb
  immutable strict parallel safe language sql
  return jsonb_build_array(party -> 'name', party -> 'tin', party -> 'registration');
comment on function named_party is
  'The members of a party that identify it: one with others is another party.';
