-- Companies and invoices for benchmarks that are inserted directly.

-- name: companies_seed :many
-- Insert a company with the facts, a verified TIN and an API key for each of the TINs.
with added as (
  insert into companies (name, tin_code, tin_verified_at, registration_number, registration_type,
         sst_registration_number, business_activity_description, msic_code, country, state,
         zip_code, city, address, phone, email)
  select name, tins.code, clock_timestamp(), registration_number, registration_type,
         sst_registration_number, business_activity_description, msic_code, country, state,
         zip_code, city, address, phone, email
    from json_populate_record(null::companies, :facts::json)
   cross join unnest(:tins::text[]) tins (code)
  returning id, tin_code)
insert into api_keys (owner_kind, owner_id, key_id, secret_sha256)
select 'company', id, key_id, digest
  from unnest(:tins::text[], :key_ids::text[], :digests::bytea[]) keys (tin, key_id, digest)
  join added on tin_code = keys.tin
returning owner_id, key_id;

-- name: invoices_seed :exec
-- Insert invoices with codes :first to :last and five lines each, over one year. Those of a day
-- are one second apart. Each name is unique.
insert into documents (company_id, kind, code, code_year, type, issue_date, buyer_text, buyer,
       line_items, net_amount, excluding_tax, including_tax, payable_amount, bytes,
       optional_members)
select :company_id::bigint, 'invoice', code, 2026, 'INVOICE',
       timestamptz '2026-01-01 01:00Z' + code % 365 * interval '1 day'
         + code / 365 % 36000 * interval '1 second',
       'buyer ' || to_char(code, 'FM0000000'),
       jsonb_build_object(
         'type', 'LOCAL_INDIVIDUAL', 'name', 'Buyer ' || to_char(code, 'FM0000000'),
         'registration', jsonb_build_object('type', 'NRIC', 'number', '900101105566'),
         'contactNumber', '+60123456789',
         'address', jsonb_build_object(
           'line1', '5 Jalan Dahlia', 'city', 'Shah Alam', 'state', '10',
           'zipCode', '40150', 'country', 'MYS')),
       (select jsonb_agg(jsonb_build_object(
                 'id', line::text, 'description', 'Coffee beans, 1 kg',
                 'classifications', jsonb_build_array('022'),
                 'unit', jsonb_build_object('code', 'KGM', 'price', 48.50, 'count', 2),
                 'taxDetails', jsonb_build_array(jsonb_build_object(
                   'taxType', '02', 'taxRate', jsonb_build_object('percentage', 8))),
                 'originCountry', 'MYS'))
          from generate_series(1, 5) line),
       485.00, 485.00, 523.80, 523.80, 1100,
       '"invoice_level_allowance_charge":null,"payment":null,"delivery":null,"billing_period":null,'
       '"references":null,"prepayment":null,"payable_rounding_amount":null'
  from generate_series(:first::bigint, :last::bigint) code;

-- name: states_seed :exec
-- Insert what triggers write for the invoices of companies, if invoices_seed ran without triggers:
-- their states, counts and words. One in a hundred is Invalid.
with stated as (
  insert into document_states (company_id, id, kind, type, status)
  select company_id, id, kind, type, case when id % 100 = 0 then 'Invalid' else 'Draft' end
    from documents
   where company_id = any(:company_ids::bigint[])
  returning company_id, kind, type, status),
counted as (
  insert into record_counts (company_id, list, status, type, slot, live)
  select company_id, kind, status, type, 0, count(*)
    from stated
   group by company_id, kind, status, type)
insert into buyer_words (company_id, word, buyer_text, invoice_id)
select company_id, word, buyer_text, id
  from documents
 cross join string_to_table(buyer_text, ' ') word
 where company_id = any(:company_ids::bigint[]);

-- name: invoice_enlarge :exec
-- Add a text of 32 * :pieces bytes to the first line of the :number-th invoice. The text cannot be
-- compressed.
update documents
   set line_items = jsonb_set(line_items::jsonb, '{0,remark}', to_jsonb((
         select string_agg(md5(random()::text || piece), '')
           from generate_series(1, :pieces::int) piece))),
       bytes = bytes + 32 * :pieces::int
 where company_id = :company_id
   and id = (select id
               from documents
              where company_id = :company_id and kind = 'invoice'
              order by id
              limit 1 offset :number::bigint);

-- name: invoices_lengthen :value
-- Repeat the first line of the oldest :number drafts up to :lines lines. Return the id of the oldest.
with lengthened as (
  update documents
     set line_items = (select json_agg(line)
                         from (select line_items -> 0 as line
                                 from generate_series(1, :lines::int)) lines),
         bytes = bytes + octet_length((line_items -> 0)::text) * :lines::int
   where company_id = :company_id
     and id = any (array(
           select id
             from document_states
            where company_id = :company_id and kind = 'invoice' and status = 'Draft'
            order by id
            limit :number::bigint))
  returning id)
select min(id) from lengthened;

-- name: submissions_seed :exec
-- Spread the invoices with codes :first to :last over the year that ends now, and submit seven of
-- ten, which are Valid now. Those that are Invalid get a document with an error.
with changed as (
  update documents
     set issue_date = clock_timestamp() - code % 365 * interval '1 day',
         taxes = jsonb_build_array(jsonb_build_object(
           'type', '02', 'rate', 8, 'taxable', 485.00, 'tax', 38.80))
   where company_id = :company_id and kind = 'invoice'
     and code between :first::bigint and :last::bigint
  returning id, code, issue_date,
            case when code % 1000 = 0 then 'Invalid' when code % 10 < 7 then 'Valid'
                 else 'Draft' end as status),
stated as (
  update document_states s
     set status = changed.status, attempts = case changed.status when 'Draft' then 0 else 1 end,
         outcome_at = case changed.status when 'Draft' then null else clock_timestamp() end,
         failed_outcome = case when changed.status = 'Invalid'
                               then submission_outcome('Invalid', null, clock_timestamp()) end
    from changed
   where s.company_id = :company_id and s.id = changed.id),
submission as (
  insert into submissions (company_id, attempt_key, tin, state, on_absence, last_sent_at)
  select id, gen_random_uuid(), tin_code, 'Finished', 'release', clock_timestamp()
    from companies
   where id = :company_id
  returning id),
logged as (
  insert into audit_log (company_id, action, subject)
  select :company_id, action, 'invoice ' || changed.id
    from changed, unnest(array['create', 'submit']) action
   where action = 'create' or status <> 'Draft'
   order by changed.id, action)
insert into submitted_documents (company_id, submission_id, kind, document_id, number,
       document_type, document_version, issued_at, document_hash, status, uuid, errors, submitted_at, validated_at)
select :company_id, submission.id, 'invoice', changed.id, 'INV-' || to_char(code, 'FM00000'), '01', '1.1',
       issue_date, md5(code::text), status, 'SEED' || changed.id,
       case status when 'Invalid' then jsonb_build_array(jsonb_build_object(
              'code', 'CF366', 'path', '/buyer/contactNumber',
              'message', 'The phone number of the buyer must have 8 to 20 characters.'))
            else '[]' end,
       issue_date, issue_date
  from changed, submission
 where status <> 'Draft';

-- name: sales_seed :exec
-- Insert sales without a named buyer, with codes :first to :last and three lines each, in the month
-- before the present one. Every tenth is tax-free.
insert into documents (company_id, kind, code, code_year, type, issue_date, line_items, net_amount,
       excluding_tax, including_tax, payable_amount, taxes, bytes, optional_members)
select :company_id::bigint, 'invoice', code, 2026, 'PENDING_FINALIZE_INVOICE',
       date_trunc('month', clock_timestamp()) - interval '1 day'
         - code % 27 * interval '1 day' - code % 36000 * interval '1 second',
       (select json_agg(json_build_object(
                 'id', line::text, 'description', 'Kopi O',
                 'classifications', json_build_array('022'),
                 'unit', json_build_object('code', 'C62', 'price', 4.50, 'count', line),
                 'taxDetails', json_build_array(json_build_object(
                   'taxType', case code % 10 when 0 then '06' else '02' end,
                   'taxRate', json_build_object(
                     'percentage', case code % 10 when 0 then 0 else 6 end)))))
          from generate_series(1, 3) line),
       27.00, 27.00, 27.00 + tax, 27.00 + tax,
       jsonb_build_array(jsonb_build_object(
         'type', case code % 10 when 0 then '06' else '02' end,
         'rate', case code % 10 when 0 then 0 else 6 end, 'taxable', 27.00, 'tax', tax)),
       600, '"payment":null'
  from generate_series(:first::bigint, :last::bigint) code
 cross join lateral (select case code % 10 when 0 then 0.00 else 1.62 end as tax) taxed;

-- name: sale_ids :value
-- Return the ids of :most sales of sales_seed.
select array_agg(id)
  from (select id
          from documents
         where company_id = :company_id and type = 'PENDING_FINALIZE_INVOICE'
         order by id
         limit :most) sales;

-- name: notes_seed :exec
-- Insert draft credit notes with codes :first to :last, each of an invoice that is Valid.
insert into documents (company_id, kind, invoice_id, code, type, issue_date, line_items,
       net_amount, excluding_tax, including_tax, payable_amount, bytes, optional_members)
select company_id, 'adjustment_note', id, :first::bigint - 1 + row_number() over (order by id),
       'CREDIT_NOTE', clock_timestamp(), line_items, net_amount, excluding_tax, including_tax, payable_amount,
       bytes, '"payment":null'
  from documents d
 where company_id = :company_id::bigint
   and id in (select s.id
                from document_states s
               where s.company_id = :company_id and s.kind = 'invoice' and s.status = 'Valid')
 order by id
 limit :last::bigint - :first::bigint + 1;

-- name: requests_seed :exec
-- Insert :number requests of buyers. Nine of ten are answered.
insert into einvoice_requests (company_id, invoice_code, buyer, status)
select :company_id::bigint, number::text,
       json_build_object(
         'type', 'LOCAL_INDIVIDUAL', 'name', 'Buyer ' || to_char(number, 'FM0000000'),
         'registration', json_build_object('type', 'NRIC', 'number', '900101105566'),
         'contactNumber', '+60123456789'),
       case when number % 10 = 0 then 'Pending' when number % 10 = 1 then 'Reject'
            else 'Approve' end
  from generate_series(1, :number::bigint) number;

-- name: deliveries_seed :exec
-- Insert :number events of invoices that were delivered to an endpoint.
with happened as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'invoice.created', json_build_object('invoice_id', number)
    from generate_series(1, :number::bigint) number
  returning id, created_at)
insert into webhook_deliveries (company_id, endpoint_id, event_id, status, attempts,
       next_attempt_at, last_attempt_at, delivered_at, response_status)
select :company_id::bigint, :endpoint_id::bigint, id, 'Delivered', 1, null, created_at, created_at,
       200
  from happened;

-- name: sizes_of_tables :many
-- Return the size of each table with rows: with everything, and of its indexes, in bytes.
select c.relname as name,
       pg_total_relation_size(c.oid) as total,
       pg_indexes_size(c.oid) as indexes
  from pg_class c
 where c.relnamespace = 'public'::regnamespace
   and c.relkind = 'r'
   and pg_relation_size(c.oid) > 0
 order by total desc, name;
