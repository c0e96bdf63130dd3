-- compatible: 0020
-- The link by which a buyer made a request: a link has few pending requests.

alter table einvoice_requests
  add column link_id bigint,
  add constraint einvoice_requests_link
    foreign key (company_id, link_id) references document_links (company_id, id);
comment on column einvoice_requests.link_id is
  'Link by which the buyer made the request. Null: made by the API, or before links were recorded.';
create index einvoice_requests_by_link on einvoice_requests (company_id, link_id)
  where link_id is not null;
