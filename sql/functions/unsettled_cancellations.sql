-- The columns are those of watch().
create or replace function unsettled_cancellations(grace interval, settle interval)
  returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select 'overdue',
           'Cancellation',
           count(*),
           min(coalesce(d.cancel_sent_by, d.cancellation_requested_at))
      from public.submitted_documents d
     where d.cancelling_until is not null
       and coalesce(d.cancel_sent_by, d.cancellation_requested_at)
           < clock_timestamp() - settle - grace
    having count(*) > 0;
  end;
alter function unsettled_cancellations owner to einvoice_across;
revoke all on function unsettled_cancellations from public;
grant execute on function unsettled_cancellations to einvoice_service;
comment on function unsettled_cancellations is
  'Cancellations of all companies whose outcome should be known: the settling time ended more '
  'than `grace` ago.';
