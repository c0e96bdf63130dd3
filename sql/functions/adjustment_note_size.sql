-- One expression without SET and security definer, so that PostgreSQL inlines it and reads no more
-- than the stored sizes.
create or replace function adjustment_note_size(note adjustment_notes) returns int
  stable parallel safe language sql
  return pg_column_size((note).line_items)
         * case when pg_column_compression((note).line_items) is null then 1 else 8 end
         + coalesce(pg_column_size((note).payment), 0)
         + coalesce(pg_column_size((note).delivery), 0)
         + coalesce(pg_column_size((note).document_references), 0);
comment on function adjustment_note_size is
  'Estimated bytes of the documents of a note; see invoice_size.';
