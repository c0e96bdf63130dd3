-- Facts of documents for lists as CSV, in addition to their records. Every statement takes
-- :company_id, and returns a row for each of :ids: the full number and the identifiers of the
-- latest document that the portal has, the taxes, the rate to MYR, and `source`, which has the
-- other party.
-- The number is that of the portal's document, or that with which the next one would be sent.

-- name: invoice_sheet :many
select i.id, i.currency_code as currency, i.exchange_rate, i.taxes::text as taxes,
       coalesce(
         d.number,
         full_code(
           invoice_prefix(i.type, c.setting),
           (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
           i.code)) as number,
       d.uuid, d.validation_link,
       json_build_object(
         'type', i.type,
         'buyer', sheet_party(i.buyer),
         'supplier', sheet_party(i.supplier))::text as source
  from invoices i
  join companies c on c.id = i.company_id
  left join lateral (
       select number, uuid, validation_link
         from submitted_documents
        where company_id = :company_id and invoice_id = i.id and uuid is not null
        order by id desc
        limit 1) d on true
 where i.company_id = :company_id and c.id = :company_id and i.id = any (:ids::bigint[]);

-- name: adjustment_note_sheet :many
-- Party, currency and rate are those of the document that the note adjusts.
select n.id, coalesce(i.currency_code, 'MYR') as currency, i.exchange_rate, n.taxes::text as taxes,
       coalesce(
         d.number,
         full_code(
           note_prefix(n.type, c.setting),
           (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
           n.code)) as number,
       d.uuid, d.validation_link,
       case when k.id is not null
            then json_build_object('type', k.type, 'month', to_char(k.month, 'YYYY-MM'))
            else json_build_object(
                   'type', i.type,
                   'buyer', sheet_party(i.buyer),
                   'supplier', sheet_party(i.supplier)) end::text as source
  from adjustment_notes n
  join companies c on c.id = n.company_id
  left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
  left join consolidated_invoices k
         on k.company_id = n.company_id and k.id = n.consolidated_invoice_id
  left join lateral (
       select number, uuid, validation_link
         from submitted_documents
        where company_id = :company_id and adjustment_note_id = n.id and uuid is not null
        order by id desc
        limit 1) d on true
 where n.company_id = :company_id and c.id = :company_id and n.id = any (:ids::bigint[]);

-- name: consolidated_invoice_sheet :many
select k.id, 'MYR' as currency, null::numeric as exchange_rate, k.taxes::text as taxes,
       coalesce(
         d.number,
         full_code(
           consolidated_prefix(k.type, c.setting),
           (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
           k.code)) as number,
       d.uuid, d.validation_link,
       json_build_object('type', k.type, 'month', to_char(k.month, 'YYYY-MM'))::text as source
  from consolidated_invoices k
  join companies c on c.id = k.company_id
  left join lateral (
       select number, uuid, validation_link
         from submitted_documents
        where company_id = :company_id and consolidated_invoice_id = k.id and uuid is not null
        order by id desc
        limit 1) d on true
 where k.company_id = :company_id and c.id = :company_id and k.id = any (:ids::bigint[]);
