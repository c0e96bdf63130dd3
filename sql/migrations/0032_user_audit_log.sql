-- compatible: 0027
-- A log of what happened to the access of each person, who may have no company or several.

create table user_audit_log (
  user_id bigint not null references users,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null default actor(),
  action text not null,
  company_name text,
  request_id text default nullif(current_setting('app.request_id', true), ''),
  client_address inet default nullif(current_setting('app.client_address', true), '')::inet,
  primary key (user_id, id),
  constraint user_audit_log_action check
    (action in ('sign_in', 'fail', 'confirm', 'link', 'use_link', 'password', 'reset'))
);
create index user_audit_log_sign_ins on user_audit_log (user_id, client_address)
  where action = 'sign_in';
create index user_audit_log_links on user_audit_log (user_id, id) where action = 'link';
grant select, insert (user_id, action, company_name) on user_audit_log to einvoice_service;
grant select on user_audit_log to einvoice_reader;
comment on table user_audit_log is
  'Sign-ins, wrong passwords, links and password changes of people. Append-only.';
comment on column user_audit_log.user_id is 'Person whose access it is about.';
comment on column user_audit_log.id is 'Identifies the entry.';
comment on column user_audit_log.at is 'When it happened.';
comment on column user_audit_log.actor is 'Id of a person, visitor, or command.';
comment on column user_audit_log.action is
  'sign_in: began a session by a password. fail: a wrong password was entered. confirm: the '
  'password was entered again. link: a one-time link was made. use_link: it was used. password: a '
  'password was stored. reset: the operator made the password void.';
comment on column user_audit_log.company_name is
  'Name that the company of a link had then. Null: the operator''s link, or another action.';
comment on column user_audit_log.request_id is 'Id of the request. Null: not in a request.';
comment on column user_audit_log.client_address is
  'Address of the client. Null: not in a request, or not known.';

alter table users add column links_seen bigint not null default 0;
grant update (links_seen) on users to einvoice_service;
grant select (links_seen) on users to einvoice_reader;
comment on column users.links_seen is
  'Entry of user_audit_log up to which the person has seen the links that others made.';
