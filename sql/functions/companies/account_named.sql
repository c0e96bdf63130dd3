-- The operator names an account. Nothing else of other accounts is readable.
create or replace function account_named(wanted text) returns bigint
  stable language sql
  return (select a.id from accounts a where a.name = wanted);
call run_across_companies('account_named');
comment on function account_named is
  'Id of the account with this exact name. Null when there is none.';
