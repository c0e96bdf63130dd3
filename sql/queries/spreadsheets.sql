-- Facts of documents for lists as CSV. Every statement takes :company_id, and returns a row for
-- each of :ids that is not deleted, in their order: the full number and the identifiers of the
-- latest document that the portal has, the amounts, the taxes, the rate to MYR and the other party.
-- The number is that of the portal's document, or that with which the next one would be sent.

-- name: document_sheet :many
-- Party, currency and rate of a note are those of the document that it adjusts.
select d.id, d.type, s.status, d.issue_date, d.excluding_tax,
       d.including_tax - d.excluding_tax as tax, d.including_tax, d.payable_amount as payable,
       source.currency_code as currency, source.exchange_rate, d.taxes::text as taxes,
       coalesce(latest.number, document_number(d.type, d.code, c.setting)) as number,
       latest.uuid, latest.validation_link,
       source.type as source_type, to_char(source.month, 'YYYY-MM') as month,
       other.party ->> 'name' as party_name, other.party ->> 'type' as party_type,
       json_build_object(
         'type', other.party -> 'type',
         'tin', other.party -> 'tin',
         'registration', other.party -> 'registration')::text as party
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
  join companies c on c.id = d.company_id
  join documents source
    on source.company_id = d.company_id
   and source.id = case when d.kind = 'adjustment_note'
                        then coalesce(d.invoice_id, d.consolidated_invoice_id)
                        else d.id end
 cross join lateral (
       select case when source.type like '%SELF_BILLED%' then source.supplier
                   else source.buyer end as party) other
  left join lateral (
       select number, uuid, validation_link
         from submitted_documents
        where company_id = :company_id and document_id = d.id and uuid is not null
        order by id desc
        limit 1) latest on true
 where d.company_id = :company_id and source.company_id = :company_id and c.id = :company_id
   and s.company_id = :company_id and d.id = any (:ids::bigint[]) and d.deleted_at is null
 order by array_position(:ids::bigint[], d.id);
