create or replace view integration_user_records with (security_invoker = true) as
select account_id,
       id,
       json_build_object(
         'id', id, 'name', name, 'email', email, 'role', role,
         'created_at', instant(created_at), 'updated_at', instant(updated_at)) as record
  from integration_users;
call publish('integration_user_records', '
  Users as the integration surface returns them.

  record: The user as a JSON object.
', 'integration_users');
