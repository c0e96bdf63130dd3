-- einvoice_reader has no grant: linked_companies() shows the companies of the current account only.
create or replace view organization_records with (security_invoker = true) as
select o.account_id,
       o.id,
       json_build_object(
         'id', o.id, 'name', o.name, 'email', o.email, 'phone', o.phone,
         'companies', (select coalesce(json_agg(c order by c.id), '[]')
                         from linked_companies(o.id) c),
         'members', (select coalesce(json_agg(json_build_object(
                              'userId', u.id, 'name', u.name, 'email', u.email, 'role', m.role)
                            order by u.created_at, u.id), '[]')
                       from organization_members m
                       join integration_users u on u.account_id = m.account_id and u.id = m.user_id
                      where m.account_id = o.account_id and m.organization_id = o.id),
         'created_at', instant(o.created_at), 'updated_at', instant(o.updated_at)) as record
  from organizations o;
grant select on organization_records to einvoice_service;
call describe('organization_records', '
  Organizations as the integration surface returns them, with linked companies and members.

  record: The organization as a JSON object.
', 'organizations');
