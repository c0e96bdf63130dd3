create or replace function full_code(prefix text, digits int, code bigint) returns text
  immutable parallel safe language sql
  return prefix || lpad(code::text, greatest(digits, length(code::text)), '0');
comment on function full_code is
  'Prefix and code, padded with zeros to a number of digits. A longer code is not truncated.';
