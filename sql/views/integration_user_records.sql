create or replace view integration_user_records with (security_invoker = true) as
select account_id,
       id,
       json_build_object(
         'id', id, 'name', name, 'email', email, 'role', role,
         'created_at', instant(created_at), 'updated_at', instant(updated_at)) as record
  from integration_users;
grant select on integration_user_records to einvoice_service, einvoice_reader;
call copy_comments('integration_users', 'integration_user_records');
comment on view integration_user_records is 'Users as the integration surface returns them.';
comment on column integration_user_records.record is 'The user as a JSON object.';
