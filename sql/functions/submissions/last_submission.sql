-- Inlined into the views of records.
create or replace function last_submission(state document_states) returns json
  stable language sql
  return case when state.failed_outcome is not null then state.failed_outcome
              when state.status = 'Submitting'
              then submission_under_way(state.company_id, state.id)
              when state.outcome_at is not null
              then submission_outcome(state.status, null, state.outcome_at) end;
comment on function last_submission is
  'The outcome of the latest submission of a document as records show it. Null: never submitted.';
