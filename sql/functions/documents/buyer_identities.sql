create or replace function buyer_identities(buyer jsonb) returns text[]
  immutable parallel safe language sql
  return array_remove(
    array[
      'tin ' || nullif(
        regexp_replace(normalised_tin(buyer ->> 'tin'), '^EI0{9}[1-4]0$', ''), ''),
      'number ' || nullif(
        nullif(normalised_tin(buyer -> 'registration' ->> 'number'), 'NA'), '')],
    null);
comment on function buyer_identities is
  'TIN and registration number of a buyer, normalised. The general TINs and NA are left out.';
