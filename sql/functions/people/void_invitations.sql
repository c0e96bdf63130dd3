create or replace function void_invitations(person bigint, kept bigint) returns void
  volatile language sql
  begin atomic
    with voided as (
      delete from company_members
       where user_id = person and accepted_at is null and company_id <> kept
      returning company_id, role
    )
    insert into audit_log (company_id, action, subject, changes)
    select company_id, 'void', format('user %s', person),
           value_changes(jsonb_build_object('role', role), null)
      from voided;
  end;
call run_across_companies('void_invitations');
comment on function void_invitations is
  'Remove the roles that a person has not accepted, except that of one company, whose link sets '
  'the password.';
