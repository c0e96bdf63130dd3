-- Code lists that the authority publishes and an operator loads; the same for every company.

create table code_lists (
  code_list   text not null,
  code        text not null,
  description text not null,
  valid_from  date not null,
  primary key (code_list, code)
);
grant select, insert, update, delete on code_lists to einvoice_service;
