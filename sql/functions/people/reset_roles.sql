create or replace function reset_roles(person bigint) returns void
  volatile language sql
  begin atomic
    with pending as (
      update company_members
         set accepted_at = null
       where user_id = person and accepted_at is not null
      returning company_id
    )
    insert into audit_log (company_id, action, subject)
    select company_id, 'reset', format('user %s', person) from pending;
  end;
call run_across_companies('reset_roles');
comment on function reset_roles is
  'Make all roles of a person pending, in all companies, until they are accepted again.';
