"""The mutants: small defects, each with a fast test that must fail because of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect: `new` replaces the only `old` in `file`, and `test` must fail.

    With an empty `old` the file is added, as a migration with a defect of the schema. `test` is
    an argument of pytest, a single test if possible, so that the whole list takes only minutes.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


def removal(name: str, file: str, text: str, test: str) -> Mutant:
    return Mutant(name, file, text, "", test)


def skipped(name: str, file: str, statement: str, test: str) -> Mutant:
    return Mutant(name, file, statement, "pass", test)


def always(name: str, file: str, condition: str, test: str) -> Mutant:
    """Return a mutant whose condition is always true."""
    return Mutant(name, file, condition, "True" if file.endswith(".py") else "true", test)


def never(name: str, file: str, condition: str, test: str) -> Mutant:
    """Return a mutant whose condition is never true."""
    return Mutant(name, file, condition, "False" if file.endswith(".py") else "false", test)


COMPARISONS = "sql/queries/comparisons.sql"
DOCUMENTS = "sql/queries/documents.sql"
SUBMISSIONS = "sql/queries/submissions.sql"
UNLESS_COMMITTED = (
    "tests/operations/test_pressure.py::test_aborted_work_is_repeated_unless_it_has_committed"
)
RECEIPTS = "tests/dashboard/test_receipts.py"
ROLES = "tests/dashboard/test_roles.py"
LAST_MIGRATION = "sql/migrations/9999_mutant.sql"
LOST_CLAIM = "tests/submission/test_claims.py::test_statement_for_a_lost_claim_changes_nothing"
FAILOVERS = (
    "tests/submission/test_machine.py"
    "::test_failovers_and_clock_steps_send_nothing_twice_and_lose_nothing[faults1-seeds0]"
)
LOST_IN_BATCH = (
    "tests/submission/test_claims.py::test_batch_statement_for_a_lost_claim_changes_nothing"
)
COMPATIBILITY = "tests/operations/test_compatibility.py"
KEY_CACHE = "tests/security/test_key_cache.py"
REFUSE_TAKEN_TIN = "sql/functions/companies/refuse_taken_tin.sql"
TIN_CLAIMS = "tests/security/test_tin_claims.py"
OWN_CLIENTS = "tests/submission/test_own_clients.py"
LOST = "tests/submission/test_lost.py"
UNKNOWN = "tests/submission/test_unknown_outcomes.py"
PARSING = "tests/api/test_parsing.py"
PORTAL_CLIENT = "tests/portal/test_portal_client.py"
EQUAL_IDS = "tests/security/test_equal_ids.py"
SEND_OUTCOMES = (
    "tests/portal/test_send_outcomes.py::test_a_response_decides_the_state_of_a_submission"
)
OVERTAKEN = (
    "tests/api/test_idempotency_claims.py::test_a_request_that_was_overtaken_creates_nothing"
)
ABSENCE = (
    "tests/submission/test_machine.py::test_absence_takes_two_confirmations_after_the_settling_time"
)

#: One process at a time works on a submission, and its writes are valid only for its claim.
EXCLUSION = (
    Mutant(
        "advisory-lock-not-asked",
        "service/db/session.py",
        'got = {row["id"] for row in rows}',
        "got = {*wanted}",
        "tests/operations/test_dedicated_session.py::test_a_submission_lock_excludes_every_other_session",
    ),
    Mutant(
        "sent-while-another-holds-the-lock",
        "service/submission/sending/send.py",
        "        if claim.id not in await stack.enter_async_context(locked):\n",
        "        if claim.id not in await stack.enter_async_context(locked) and False:\n",
        "tests/operations/test_dedicated_session.py::test_submission_is_not_changed_while_its_lock_is_held[Queued]",
    ),
    Mutant(
        "send-with-a-removed-client",
        SUBMISSIONS,
        "   and (not :is_own::boolean or exists (select from own))",
        "   and (not :is_own::boolean or true or exists (select from own))",
        "tests/submission/test_own_clients.py::test_nothing_is_sent_with_a_client_that_is_being_removed",
    ),
    Mutant(
        "sent-with-a-lost-claim",
        SUBMISSIONS,
        "where company_id = :company_id and id = :id and fence = :fence and state = 'Queued'\n",
        "where company_id = :company_id and id = :id and :fence::bigint > 0 and state = 'Queued'\n",
        f"{LOST_CLAIM}[submission_send]",
    ),
    Mutant(
        "sent-in-any-state",
        SUBMISSIONS,
        "where company_id = :company_id and id = :id and fence = :fence and state = 'Queued'\n",
        "where company_id = :company_id and id = :id and fence = :fence\n",
        "tests/submission/test_claims.py::test_only_a_queued_submission_is_marked_as_sending[Uncertain]",
    ),
    always(
        "another-request-sent-again",
        "service/submission/sending/send.py",
        'stored["request_sha256"] in (None, request.sha256)',
        "tests/submission/test_claims.py::test_changed_documents_are_not_sent",
    ),
    removal(
        "intent-of-another-request-committed",
        SUBMISSIONS,
        "   and (request_sha256 is null or request_sha256 = :request_sha256)\n",
        "tests/submission/test_claims.py::test_no_intent_is_committed_for_another_request",
    ),
    Mutant(
        "intent-of-other-documents-committed",
        SUBMISSIONS,
        "   and :document_hashes::text[] = array(\n         select document_hash\n",
        "   and :document_hashes::text[] is not null and array[1] <> array(\n         select 2\n",
        "tests/submission/test_claims.py::test_no_intent_is_committed_for_another_request",
    ),
    Mutant(
        "documents-with-another-hash-sent",
        "service/submission/sending/send.py",
        'request.document_hashes != [row["document_hash"] for row in contents]',
        "not request.document_hashes",
        "tests/submission/test_claims.py::test_changed_documents_are_not_sent",
    ),
    Mutant(
        "hash-of-the-request-not-stored",
        SUBMISSIONS,
        "       request_sha256 = :request_sha256, client_id = :client_id,\n",
        "       request_sha256 = case when :request_sha256::bytea is null then '' end,"
        " client_id = :client_id,\n",
        "tests/submission/test_claims.py::test_changed_documents_are_not_sent",
    ),
    removal(
        "sent-while-sending-is-held",
        SUBMISSIONS,
        "   and not exists (select\n"
        "                     from sending_holds h\n"
        "                    where h.company_id = :company_id and h.released_at is null)\n",
        "tests/submission/test_claims.py::test_no_submission_is_marked_as_sending_during_a_sending_hold",
    ),
    removal(
        "lost-claim-kept",
        COMPARISONS,
        "     and s.fence = held.fence\n",
        f"{LOST_IN_BATCH}[comparison_keep-fence = fence + 1]",
    ),
    removal(
        "result-of-a-lost-claim-written",
        SUBMISSIONS,
        " and s.fence = m.fence",
        f"{LOST_IN_BATCH}[submission_move-fence = fence + 1]",
    ),
    removal(
        "result-of-a-returned-claim-written",
        SUBMISSIONS,
        " s.lease_until is not null and",
        f"{LOST_IN_BATCH}[submission_move-lease_until = null]",
    ),
    removal(
        "lost-claim-given-back",
        SUBMISSIONS,
        "   and s.fence = h.fence\n",
        f"{LOST_IN_BATCH}[submission_release-fence = fence + 1]",
    ),
    Mutant(
        "batch-lock-dropped",
        "sql/queries/foundation.sql",
        " where pg_try_advisory_lock(\n"
        "         hashtextextended(format('submission %s %s', :company_id::bigint, id), 0));",
        " where :company_id::bigint is not null;",
        "tests/operations/test_dedicated_session.py::test_a_batch_of_locks_leaves_out_those_of_other_sessions",
    ),
    Mutant(
        "cancellation-ended-by-a-lost-claim",
        SUBMISSIONS,
        "       updated_at = clock_timestamp()\n"
        " where company_id = :company_id and id = :id and cancel_fence = :fence",
        "       updated_at = clock_timestamp()\n"
        " where company_id = :company_id and id = :id and :fence::bigint > 0",
        "tests/submission/test_claims.py::test_end_of_a_lost_cancellation_changes_nothing",
    ),
    Mutant(
        "cancellation-postponed-by-a-lost-claim",
        SUBMISSIONS,
        "cancel_reads + 1 end\n"
        " where company_id = :company_id and id = :id and cancel_fence = :fence",
        "cancel_reads + 1 end\n where company_id = :company_id and id = :id and :fence::bigint > 0",
        "tests/submission/test_claims.py::test_result_of_a_lost_cancellation_changes_nothing",
    ),
    Mutant(
        "documents-changed-by-a-lost-claim",
        "service/submission/store.py",
        "[(claim, submission, command)]):\n        return False\n    await apply_changes(",
        "[(claim, submission, command)]):\n        pass\n    await apply_changes(",
        "tests/submission/test_claims.py::test_result_for_a_lost_claim_changes_no_document",
    ),
    removal(
        "late-look-undoes-a-cancellation",
        SUBMISSIONS,
        " and d.status = any (w.expected)",
        "tests/submission/test_claims.py::test_stale_status_does_not_overwrite_a_later_one",
    ),
    Mutant(
        "notifications-not-received",
        "service/db/session.py",
        "            await conn.add_listener(channel, lambda *args, heard=heard: heard(args[3]))",
        "            del channel, heard",
        "tests/operations/test_dedicated_session.py::test_notifications_reach_the_listeners_of_a_session",
    ),
    removal(
        "silent-sessions-kept",
        "service/db/connections.py",
        "**{name: str(limit) for name, limit in limits.items()}",
        "tests/operations/test_silence.py::test_the_pool_of_a_command_has_keepalive_on_both_ends",
    ),
    always(
        "interrupted-claim-counted",
        "service/submission/runner.py",
        "not is_interruption(error)",
        "tests/submission/test_claims.py::test_transient_database_errors_are_not_counted",
    ),
    never(
        "own-failure-not-counted",
        "service/submission/runner.py",
        "not is_interruption(error)",
        "tests/submission/test_claims.py::test_result_that_the_database_rejects_needs_manual_review[57014]",
    ),
    Mutant(
        "polls-of-one-company-first",
        "sql/functions/submissions/claim_submissions.sql",
        "order by next.place, random()",
        "order by s.not_before",
        "tests/submission/test_poll_order.py::test_each_company_is_polled_before_one_is_polled_twice",
    ),
    Mutant(
        "export-batch-of-any-size",
        "service/api/exports.py",
        "budget = BATCH_CHARACTERS",
        "budget = 1000 * BATCH_CHARACTERS",
        "tests/api/test_large_pages.py::test_export_batch_is_bounded_in_bytes[compressible-12000000]",
    ),
    Mutant(
        "many-exports-with-full-batches",
        "service/api/exports.py",
        "max(FULL_BATCHES, exports.running())",
        "FULL_BATCHES",
        "tests/api/test_large_pages.py::test_many_exports_share_the_memory_of_a_few",
    ),
)

#: What decides that a document is absent, that work is a suspect, or that a key is free.
EVIDENCE = (
    never(
        "absence-proved-by-another-client",
        "service/submission/following/unknown_outcomes.py",
        "sender and sender != self.context.portal.login_for(self.tin).client_id",
        "tests/submission/test_own_clients.py"
        "::test_a_listing_of_another_client_does_not_prove_absence",
    ),
    Mutant(
        "unknown-outcome-waits-for-a-comparison",
        "service/submission/following/comparison.py",
        "await asyncio.sleep(LOOK_UP_SECONDS)",
        "await asyncio.sleep(3600)",
        "tests/submission/test_comparison.py::test_an_unknown_outcome_does_not_wait_for_a_long_comparison",
    ),
    Mutant(
        "queue-of-the-portal-not-listed",
        "service/submission/following/comparison.py",
        "span.until + CLOCK_TOLERANCE, bool(",
        "span.since + 2 * CLOCK_TOLERANCE, bool(",
        f"{UNKNOWN}::test_document_that_waited_in_the_queue_of_the_portal_is_found",
    ),
    removal(
        "listed-document-counts-as-absent",
        "service/submission/following/unknown_outcomes.py",
        "                    await batch.compare(shown)\n",
        f"{UNKNOWN}::test_document_that_waited_in_the_queue_of_the_portal_is_found",
    ),
    never(
        "receipt-not-read-confirms-absence",
        "service/submission/following/unknown_outcomes.py",
        "not _receipt_uids(submission) <= self.receipts.keys()",
        "tests/submission/test_unknown_outcomes.py"
        "::test_receipt_that_was_not_read_confirms_no_absence",
    ),
    Mutant(
        "look-up-longer-than-the-portal-lists",
        "service/submission/following/comparison.py",
        'max(row["first_sent_at"], row["now"] - FURTHEST)',
        'row["first_sent_at"]',
        f"{UNKNOWN}::test_old_unknown_outcome_needs_manual_review_and_blocks_no_other",
    ),
    removal(
        "old-unknown-outcome-looked-up-for-ever",
        "service/submission/following/unknown_outcomes.py",
        "        if first_sent_at < self.listed_at - FURTHEST:\n"
        "            return ListingUnavailable(SENT_LONG_AGO)\n",
        f"{UNKNOWN}::test_old_unknown_outcome_needs_manual_review_and_blocks_no_other",
    ),
    Mutant(
        "unknown-submission-with-an-outcome-reviewed",
        "service/submission/machine/state_machine.py",
        "    if submission.has_outcome:\n",
        "    if False:\n",
        f"{LOST}::test_unknown_submission_with_an_outcome_needs_no_manual_review",
    ),
    removal(
        "failed-poll-ends-the-unknown-time",
        "service/submission/machine/state_machine.py",
        "_describe_unknown(submission, event) if submission.unknown_since else ",
        f"{LOST}::test_failed_poll_does_not_end_the_time_since_when_a_submission_is_unknown",
    ),
    Mutant(
        "gateway-404-means-unknown",
        "service/submission/following/poll.py",
        "is_unknown = isinstance(why, Refused) and why.is_missing",
        "is_unknown = isinstance(why, Refused) and why.status == 404",
        f"{LOST}::test_gateway_404_does_not_mean_that_a_submission_is_unknown",
    ),
    Mutant(
        "failed-search-counts",
        "service/submission/following/poll.py",
        "replace(failure, searched=is_searched)",
        "replace(failure, searched=True)",
        f"{LOST}::test_failed_search_for_an_unknown_submission_is_repeated",
    ),
    removal(
        "sighting-of-a-former-submission-forgotten",
        SUBMISSIONS,
        " || d.submission_id",
        f"{UNKNOWN}::test_uuid_seen_for_the_former_submission_counts_for_a_part",
    ),
    always(
        "suspects-claimed-together",
        "sql/functions/submissions/claim_submissions.sql",
        "(not r.is_suspect or r.rank <= suspects)",
        "tests/submission/test_claims.py::test_claims_take_at_most_the_allowed_number_of_suspects[2]",
    ),
    removal(
        "event-of-a-slow-transaction-skipped",
        "sql/functions/webhooks/fan_out_webhooks.sql",
        "and n.transaction_id < pg_snapshot_xmin(pg_current_snapshot())",
        "tests/api/test_webhooks.py::test_an_event_of_a_slow_transaction_is_delivered",
    ),
    Mutant(
        "expired-idempotency-key-taken-by-another-body",
        "sql/queries/idempotency.sql",
        "   and created_at > clock_timestamp() - interval '72 hours'\n"
        "   and (status is not null or body_sha256 is distinct from :body_sha256",
        "   and (status is not null or body_sha256 is distinct from body_sha256",
        "tests/api/test_repetition.py::test_the_idempotency_key_of_a_dead_request_is_not_taken_by_another_body",
    ),
    Mutant(
        "idempotency-key-of-another-request-replaced",
        "sql/queries/idempotency.sql",
        "        and k.body_sha256 = excluded.body_sha256)\n",
        "        and k.body_sha256 = excluded.body_sha256) or true\n",
        f"{OVERTAKEN}[an e-invoice request]",
    ),
    Mutant(
        "error-of-an-overtaken-request-returned",
        "service/http/idempotency.py",
        "            is_mine = response.status < 400",
        "            is_mine = True",
        "tests/dashboard/test_form_repetition.py::test_a_form_that_is_sent_twice_creates_once",
    ),
    Mutant(
        "conflict-replayed",
        "service/http/idempotency.py",
        "NOT_STORED = {401, 408, 409,",
        "NOT_STORED = {401, 408,",
        "tests/api/test_repetition.py::test_a_conflict_is_not_replayed_for_its_key",
    ),
    Mutant(
        "late-cancellation-not-read",
        "service/submission/machine/state_machine.py",
        "CANCEL_GRACE = timedelta(hours=2)",
        "CANCEL_GRACE = timedelta(0)",
        "tests/submission/test_machine.py::test_valid_documents_are_read_until_two_hours_after_the_cancel_window",
    ),
)

#: Nothing is sent twice, and no sent document is lost.
ONCE = (
    never(
        "interim-response-replayed-at-once",
        "service/api/invoices.py",
        "started is not None",
        "tests/api/test_repetition.py::test_a_repetition_of_a_creation_waits_for_its_submission",
    ),
    Mutant(
        "running-month-consolidated",
        "service/documents/consolidation.py",
        "if min(issue_date, now) < period.until:",
        "if issue_date < period.until:",
        "tests/api/test_consolidated_invoices.py::test_a_month_that_has_not_ended_is_rejected",
    ),
    Mutant(
        "bytes-before-the-intent",
        "service/submission/sending/send.py",
        '        failpoints.reach("before_intent_commit")\n',
        '        await conn.execute("rollback")\n        await conn.execute("begin")\n',
        "tests/submission/test_faults.py::test_intent_is_committed_before_the_portal_receives_the_bytes",
    ),
    never(
        "old-intent-sent",
        "service/submission/sending/send.py",
        "time.monotonic() - self.began > STALE_SECONDS",
        "tests/submission/test_claims.py::test_expired_intent_is_not_sent",
    ),
    removal(
        "sent-without-an-intent",
        "service/submission/sending/send.py",
        " if await transmission.commit_intent() else None",
        FAILOVERS,
    ),
    Mutant(
        "documents-of-a-merged-submission-left",
        SUBMISSIONS,
        " where d.company_id = :company_id and d.submission_id = m.id;\n",
        " where d.company_id = :company_id and d.submission_id = -m.id;\n",
        "tests/submission/test_batches.py::test_claim_on_a_merged_submission_sends_nothing",
    ),
    removal(
        "intent-before-the-connection",
        "service/portal/open_submission.py",
        "        await asyncio.wait({request, connected}, return_when=asyncio.FIRST_COMPLETED)\n",
        "tests/portal/test_slow_connect.py::test_a_failed_connection_leaves_no_intent",
    ),
    Mutant(
        "redirect-of-the-portal-followed",
        "service/portal/transport.py",
        "allow_redirects=False,",
        "allow_redirects=True,",
        f"{SEND_OUTCOMES}[308]",
    ),
    never(
        "long-response-of-the-portal-read-whole",
        "service/portal/transport.py",
        "len(raw) > MOST_BYTES",
        f"{SEND_OUTCOMES}[longer than 1 MiB]",
    ),
    never(
        "same-payload-taken-as-a-refusal",
        "service/portal/responses.py",
        "authority_code(body) == Duplicate.code",
        f"{SEND_OUTCOMES}[422 duplicate]",
    ),
    Mutant(
        "refused-token-not-renewed",
        "service/portal/client.py",
        "            if response.status == 401:\n                response",
        "            if False:\n                response",
        f"{SEND_OUTCOMES}[401 twice]",
    ),
    Mutant(
        "one-wrong-date-stops-sending",
        "service/portal/clock.py",
        "            await self._measure_again(measure)\n",
        "            self._judge(self.latest.ahead_of(database))\n",
        "tests/portal/test_portal_clock.py::test_an_unconfirmed_clock_difference_does_not_block",
    ),
    Mutant(
        "sending-found-queued-again",
        "service/submission/machine/state_machine.py",
        'return [Write("Uncertain", error=ABANDONED, still_sent=True)]',
        'return [Write("Queued", error=ABANDONED)]',
        "tests/submission/test_machine.py::test_a_submission_found_sending_is_never_queued_again",
    ),
    never(
        "one-confirmation-of-absence",
        "service/submission/machine/state_machine.py",
        "not submission.absence_confirmations",
        ABSENCE,
    ),
    always(
        "settling-time-ignored",
        "service/submission/machine/state_machine.py",
        "sent_at + times.portal_settle <= at",
        ABSENCE,
    ),
    always(
        "evidence-gap-ignored",
        "service/submission/machine/state_machine.py",
        "submission.absence_confirmed_at + times.portal_confirmation_gap <= at",
        ABSENCE,
    ),
    Mutant(
        "evidence-outlives-an-unclear-send",
        SUBMISSIONS,
        "absence_confirmations = case when m.still_sent then 0\n",
        "absence_confirmations = case when m.still_sent then s.absence_confirmations\n",
        "tests/submission/test_claims.py::test_unclear_send_resets_absence_confirmations",
    ),
    Mutant(
        "unclear-send-counted-from-its-start",
        SUBMISSIONS,
        "last_sent_at = case when m.still_sent then clock_timestamp() else s.last_sent_at end,",
        "last_sent_at = s.last_sent_at,",
        "tests/submission/test_claims.py::test_unclear_send_resets_absence_confirmations",
    ),
    Mutant(
        "evidence-only-with-a-claim",
        "service/submission/store.py",
        "        for one",
        "        if await load(context, claim)\n        for one",
        "tests/submission/test_claims.py::test_sighting_is_recorded_for_a_lost_claim",
    ),
    Mutant(
        "duplicate-answer-is-a-refusal",
        "service/submission/sending/send.py",
        "    return OutcomeUnknown(error)  # a Duplicate",
        "    return RefusalReceived(error)",
        "tests/submission/test_faults.py"
        "::test_a_reported_duplicate_that_is_not_listed_needs_manual_review",
    ),
    removal(
        "matched-by-number-only",
        "service/submission/machine/comparison_rules.py",
        "        and there.type_code in (None, doc.document_type)\n"
        "        and there.issued_at in (None, doc.issued_at)\n",
        "tests/submission/test_matching.py::test_a_document_with_another_issue_time_is_not_adopted",
    ),
    Mutant(
        "uuid-of-another-submission-adopted",
        "service/submission/following/matching.py",
        "        elif submission_id == one.submission_id:\n",
        "        else:\n",
        "tests/submission/test_matching.py::test_a_document_of_another_submission_is_not_adopted",
    ),
    Mutant(
        "copy-of-the-portal-not-compared",
        "service/submission/following/matching.py",
        "self._decide(candidate, is_same)",
        "self._decide(candidate, bool(content))",
        "tests/submission/test_document_identity.py::test_document_with_other_bytes_is_unproven",
    ),
    Mutant(
        "row-proves-under-a-shared-tin",
        "service/submission/following/matching.py",
        "by_row = {tin for tin, is_shared in shared.items() if not (is_shared or named)}",
        "by_row = set(shared)",
        "tests/submission/test_document_identity.py::test_listing_row_proves_nothing_if_the_tin_is_shared",
    ),
    Mutant(
        "uuid-of-another-company-adopted",
        "service/submission/following/matching.py",
        "            left.append(replace(one, is_elsewhere=True))\n",
        "            left.append(one)\n",
        "tests/submission/test_document_identity.py::test_uuid_of_another_company_is_unproven",
    ),
    removal(
        "total-of-a-row-not-compared",
        "service/submission/following/document_comparison.py",
        '        "payable amount": (there.payable, sent.payable),\n',
        "tests/submission/test_document_identity.py::test_listing_row_with_a_different_or_missing_value_proves_nothing",
    ),
    removal(
        "unproven-document-counts-as-absent",
        "service/submission/machine/state_machine.py",
        "    elif unproven := submission.unproven():\n"
        "        write = _request_review(submission, unproven)\n",
        "tests/submission/test_document_identity.py::test_document_of_another_company_needs_manual_review",
    ),
    Mutant(
        "rate-limits-keep-long-names",
        "service/http/limits.py",
        "    return blake2b(repr(name).encode(), digest_size=16).digest()\n",
        "    return repr(name).encode()\n",
        "tests/operations/test_pressure.py::test_the_rate_limiter_keeps_names_of_a_fixed_size",
    ),
    never(
        "invalid-address-takes-a-try",
        "service/dashboard/sign_in.py",
        "not people.is_email(email)",
        "tests/dashboard/test_sessions.py::test_tries_with_an_invalid_address_count_for_no_limit[nobody]",
    ),
    Mutant(
        "csv-is-no-export",
        "service/api/exports.py",
        '    if request.method == "HEAD":\n        return await stream_text',
        "    if request.method:\n        return await stream_text",
        "tests/dashboard/test_spreadsheet.py::test_a_company_downloads_a_list_once_at_a_time",
    ),
    Mutant(
        "csv-reads-whole-records",
        "service/api/records.py",
        "name, budget=0)",
        "name, budget=100_000_000)",
        "tests/dashboard/test_spreadsheet.py::test_a_list_of_large_documents_takes_little_memory",
    ),
    skipped(
        "keys-counted-without-a-lock",
        "service/http/api_keys.py",
        "await sql.company_lock(conn, company_id=owner_id)",
        "tests/security/test_auth.py::test_two_keys_at_the_limit_are_not_both_created",
    ),
    removal(
        "invalid-keys-count-for-the-limit",
        "sql/queries/api_keys.sql",
        "                     and revoked_at is null\n"
        "                     and (expires_at is null or expires_at > clock_timestamp())",
        "tests/security/test_auth.py::test_a_company_has_at_most_50_valid_keys",
    ),
    Mutant(
        "rate-limit-per-key",
        "service/http/middleware.py",
        "request.app[app_keys.LIMITER].take(key.owner.id)",
        "request.app[app_keys.LIMITER].take(key.key_id)",
        "tests/security/test_auth.py::test_rate_limit_is_shared_by_the_keys_of_a_company",
    ),
    Mutant(
        "pages-limited-by-person",
        "service/dashboard/pages.py",
        '.take(("pages", client))',
        '.take(("pages", actor))',
        "tests/dashboard/test_sessions.py::test_pages_of_a_company_have_a_limit_apart_from_its_keys",
    ),
    removal(
        "removed-members-not-named",
        "service/api/documents.py",
        '        await warn_of_removed(request, row["body"], body)\n',
        "tests/api/test_unknown_members.py::test_a_partial_buyer_of_an_update_warns_of_removed_members",
    ),
    removal(
        "uuid-of-another-company-shown",
        "service/submission/store.py",
        "    command = await _mask_uuids(context, claim, submission, command)\n",
        "tests/submission/test_document_identity.py::test_refusal_of_a_submission_hides_the_uuid_of_another_company[reject]",
    ),
    Mutant(
        "uuid-in-several-companies",
        LAST_MIGRATION,
        "",
        "drop index submitted_documents_uuid_once;\n"
        "create unique index submitted_documents_uuid_once on submitted_documents (company_id, "
        "uuid);",
        "tests/submission/test_document_identity.py::test_concurrent_adoptions_of_one_uuid_succeed_once",
    ),
    Mutant(
        "reference-to-another-kind-stored",
        "sql/migrations/0002_documents.sql",
        "                and kind <> case id when",
        "                and '' = case id when",
        "tests/api/test_kinds.py::test_a_reference_to_another_kind_is_not_stored[$1, null]",
    ),
    removal(
        "optional-member-in-place-of-one-of-the-record",
        "sql/migrations/0002_documents.sql",
        ", 'status'",
        "tests/documents/test_document_members.py"
        "::test_no_optional_member_replaces_one_of_the_record",
    ),
    Mutant(
        "optional-members-not-exported",
        "service/documents/optional_members.py",
        "NAMES.get(name, name): found[name]",
        "name: found[name]",
        "tests/documents/test_document_members.py::test_exports_have_the_optional_members",
    ),
    Mutant(
        "document-of-another-kind-found",
        DOCUMENTS,
        "and d.id = :id and d.kind = :kind and d.deleted_at is null;",
        "and d.id = :id and :kind <> '' and d.deleted_at is null;",
        "tests/api/test_kinds.py::test_an_id_of_another_kind_is_as_unknown_as_any",
    ),
    Mutant(
        "document-changed-twice-in-a-statement",
        SUBMISSIONS,
        "from adjusting where adjusts_by <> 0)",
        "from adjusting where id not in (select document_id from moved))",
        "tests/api/test_kinds.py::test_a_document_and_its_note_change_in_one_statement",
    ),
    Mutant(
        "two-live-documents-of-an-invoice",
        LAST_MIGRATION,
        "",
        "drop index submitted_documents_one_live_per_document;",
        "tests/project/test_architecture.py::test_unique_index_covers_the_locked_states",
    ),
    Mutant(
        "proven-sighting-dropped",
        LAST_MIGRATION,
        "",
        "alter table portal_sightings drop constraint portal_sightings_pkey, add primary key "
        "(company_id, submission_id, uuid);",
        "tests/submission/test_claims.py::test_sighting_is_recorded_for_a_lost_claim",
    ),
)

#: Acknowledged effects are durable, and requests can be repeated.
KEPT = (
    Mutant(
        "sessions-commit-asynchronously",
        "service/db/pool.py",
        '    "jit": "off",\n',
        '    "jit": "off",\n    "synchronous_commit": "off",\n',
        "tests/operations/test_durability.py::test_every_transaction_of_the_service_commits_synchronously[account]",
    ),
    Mutant(
        "transactions-commit-asynchronously",
        "service/db/transactions.py",
        '    "begin; set local app.actor',
        '    "begin; set local synchronous_commit = off; set local app.actor',
        "tests/operations/test_durability.py::test_every_transaction_of_the_service_commits_synchronously[account]",
    ),
    skipped(
        "idempotency-key-with-any-body",
        "service/http/idempotency.py",
        "raise key_reused()",
        "tests/api/test_repetition.py::test_an_idempotency_key_with_another_body_is_refused",
    ),
    Mutant(
        "page-compressed",
        "service/dashboard/pages.py",
        "    if session is None and request.cookies.get(VISITOR)",
        "    response.enable_compression(web.ContentCoding.gzip)\n"
        "    if session is None and request.cookies.get(VISITOR)",
        "tests/dashboard/test_documents.py::test_only_responses_without_secrets_are_compressed[/sign-in-False]",
    ),
    removal(
        "carried-form-of-any-person",
        "service/dashboard/sessions.py",
        " if hmac.compare_digest(text.encode(), expected.encode()) else None",
        "tests/dashboard/test_carried_forms.py::test_a_forged_form_is_left_out[1.wrong]",
    ),
    never(
        "form-of-any-company",
        "service/dashboard/pages.py",
        "page.right != PERSON and company_id != session.company_id",
        "tests/dashboard/test_carried_forms.py::test_a_form_is_sent_for_the_company_that_it_was_opened_for",
    ),
    Mutant(
        "form-key-of-any-person",
        "service/dashboard/repetition.py",
        'return f"{owner} {form_key(page)}"',
        "return form_key(page)",
        "tests/dashboard/test_form_repetition.py::test_the_key_of_a_form_is_that_of_one_person",
    ),
    Mutant(
        "secret-of-a-form-shown-twice",
        "sql/queries/idempotency.sql",
        "   set sealed_secrets = null\n",
        "   set sealed_secrets = k.sealed_secrets\n",
        "tests/dashboard/test_form_repetition.py::test_a_form_that_is_sent_twice_creates_once[invitation]",
    ),
    Mutant(
        "edit-refused-as-that-of-another",
        "service/dashboard/repetition.py",
        "path, content, partial(_run_once, request))",
        'path, content, partial(_run_once, request) if method == "POST" else run_handler)',
        "tests/dashboard/test_form_repetition.py::test_an_edit_that_is_sent_twice_is_saved_once[submit]",
    ),
    always(
        "repeated-form-submits-again",
        "service/dashboard/editing.py",
        "not answer.is_replayed",
        "tests/dashboard/test_form_repetition.py::test_a_form_that_is_sent_again_submits_no_change_of_another",
    ),
    never(
        "unchanged-field-written",
        "service/dashboard/document_form.py",
        "steps[-1] not in NUMBERS",
        "tests/dashboard/test_invoice_form.py::test_fields_that_were_not_changed_keep_their_members",
    ),
    Mutant(
        "draft-that-is-ready-submitted",
        "service/dashboard/editing.py",
        'if edited.record and choice == "save" and edited.record.get("is_ready"):',
        'if choice == "never":',
        "tests/dashboard/test_invoice_form.py::test_a_ready_invoice_that_is_saved_as_a_draft_is_not_submitted",
    ),
    never(
        "long-note-cut",
        "service/dashboard/editing.py",
        'len(record["line_items"]) > MOST_LINES',
        "tests/dashboard/test_invoice_form.py::test_a_note_for_more_lines_than_the_form_shows_is_refused",
    ),
    Mutant(
        "warnings-of-an-aborted-attempt",
        "service/http/requests.py",
        "request[app_keys.WARNINGS] = warnings  #",
        "_add_warnings(request, warnings)  #",
        "tests/api/test_unknown_members.py::test_a_repeated_attempt_does_not_repeat_its_warnings",
    ),
    never(
        "key-made-expired",
        "service/commands/companies.py",
        "expires_at <= datetime.now(UTC)",
        "tests/operations/test_commands.py::test_key_with_an_expiry_is_valid_until_then",
    ),
    Mutant(
        "approval-without-an-invoice-praised",
        "service/dashboard/buyer_requests.py",
        'if choice == "approve" and not',
        'if choice == "never" and not',
        "tests/dashboard/test_receipts.py::test_an_approval_without_an_invoice_says_so_to_both",
    ),
    removal(
        "form-created-twice",
        "service/dashboard/repetition.py",
        "text if _KEY.fullmatch(text) else ",
        "tests/dashboard/test_form_repetition.py::test_a_buyer_who_sends_the_request_twice_asks_once",
    ),
    always(
        "answer-not-kept-with-its-effect",
        "service/http/idempotency.py",
        "await _keep(conn, claim, response, sealed_secrets, is_interim)",
        "tests/api/test_idempotency_claims.py::test_a_request_whose_key_cannot_be_stored_is_a_409",
    ),
    Mutant(
        "effect-of-a-lost-claim-committed",
        "service/http/idempotency.py",
        "    if not is_stored:\n        raise ClaimLost",
        "    if not is_stored:\n        return",
        f"{OVERTAKEN}[an e-invoice request]",
    ),
    Mutant(
        "request-that-a-shutdown-aborts-not-repeated",
        "service/db/transient_errors.py",
        "isinstance(report, asyncpg.AdminShutdownError) for report in reports",
        "report is None and error is None for report in reports",
        "tests/operations/test_pressure.py::test_a_transaction_that_a_shutdown_aborts_is_retried",
    ),
    removal(
        "no-wait-for-the-end-of-a-failover",
        "service/db/transactions.py",
        " time.monotonic() + RECONNECT_SECONDS >=",
        "tests/operations/test_pressure.py::test_requests_wait_for_the_end_of_a_failover",
    ),
    Mutant(
        "claim-of-an-interrupted-submit-kept",
        "service/submission/runner.py",
        "await store.release(context, claim.company_id, released)",
        "released.clear()",
        "tests/submission/test_claims.py::test_submit_that_the_database_interrupts_is_continued_by_a_worker",
    ),
    removal(
        "submit-without-its-claim",
        "service/submission/sending/submit.py",
        "            await guard(conn, row)\n",
        "tests/api/test_idempotency_claims.py::test_a_submit_without_its_key_does_not_resend_a_cancelled_document",
    ),
    removal(
        "submit-of-what-was-not-shown",
        "service/api/submissions.py",
        "    await check_if_match(request, conn, documents.get, **key)\n",
        "tests/api/test_repetition.py::test_a_stale_if_match_submits_and_cancels_nothing",
    ),
    removal(
        "button-about-what-was-not-shown",
        "service/dashboard/documents.py",
        '    request[SHOWN] = form.get(ETAG, "")\n',
        "tests/dashboard/test_outcomes.py::test_a_button_concerns_only_what_its_page_has_shown",
    ),
    never(
        "approval-of-what-was-not-shown",
        "service/dashboard/buyer_requests.py",
        'request[FORM].get("shown", record["updated_at"]) != record["updated_at"]',
        "tests/dashboard/test_documents.py::test_an_approval_concerns_only_the_request_that_was_shown",
    ),
    never(
        "late-submit-of-a-cancelled-document",
        "service/api/submissions.py",
        "is_reissue(row) and documents.kind is not CONSOLIDATED and not resubmits",
        "tests/submission/test_cancel.py::test_a_late_submit_of_a_cancelled_invoice_sends_no_second_document",
    ),
    removal(
        "interim-response-replayed-while-the-first-request-runs",
        "service/http/idempotency.py",
        " if stored else _find_other(request, claim)",
        "tests/api/test_idempotency_claims.py::test_concurrent_creations_that_submit_get_the_final_response",
    ),
    Mutant(
        "work-sent-in-vain-not-split",
        "service/submission/machine/state_machine.py",
        "    if submission.sends < VAIN_SENDS:\n",
        "    if len(submission.docs) > 1:\n",
        "tests/submission/test_unknown_outcomes.py::test_promised_work_that_was_sent_in_vain_is_split_then_reviewed",
    ),
    Mutant(
        "work-sent-in-vain-not-reviewed",
        "service/submission/machine/state_machine.py",
        "    if submission.now - first_sent_at > LISTING_DEADLINE:\n"
        '        return Write("NeedsPerson", error=SENT_IN_VAIN)\n',
        "",
        "tests/submission/test_unknown_outcomes.py::test_promised_work_that_was_sent_in_vain_is_split_then_reviewed",
    ),
    Mutant(
        "halves-of-absent-work-sent-as-new",
        "service/submission/machine/state_machine.py",
        "possibly_received=is_absent)",
        "possibly_received=False)",
        "tests/submission/test_unknown_outcomes.py::test_promised_work_that_was_sent_in_vain_is_split_then_reviewed",
    ),
    always(
        "unreadable-reasons-awaited-for-ever",
        "service/submission/following/poll.py",
        "isinstance(why, Throttled) or is_open",
        "tests/submission/test_submission.py::test_an_invalid_document_without_readable_reasons[False-shown0]",
    ),
    removal(
        "duplicate-without-readable-reasons-called-invalid",
        "service/submission/following/poll.py",
        " submission.possibly_received or",
        "tests/submission/test_submission.py"
        "::test_an_invalid_document_without_readable_reasons[True-shown0]",
    ),
    Mutant(
        "name-of-an-invited-person-shown",
        "sql/queries/activity.sql",
        "case when m.accepted_at is null then u.email else u.name end",
        "u.name",
        "tests/dashboard/test_roles.py::test_companies_neither_see_nor_choose_the_name_of_anothers_person",
    ),
    Mutant(
        "name-of-a-person-who-refuses-shown",
        "sql/queries/activity.sql",
        "case when p.action = 'refuse' then u.email else p.user_name end",
        "p.user_name",
        "tests/dashboard/test_roles.py::test_companies_neither_see_nor_choose_the_name_of_anothers_person",
    ),
    removal(
        "weak-passwords-for-a-link-unlimited",
        "service/dashboard/sign_in.py",
        "    _refuse(request.app[SIGN_IN].tries.take(request[SENDER].group))\n",
        "tests/dashboard/test_roles.py::test_weak_passwords_for_a_link_are_limited",
    ),
    Mutant(
        "receipt-stores-members-without-a-field",
        "service/dashboard/sharing.py",
        "if name in PARTY}",
        "if name}",
        "tests/dashboard/test_receipts.py::test_a_request_has_only_the_members_of_its_form",
    ),
    Mutant(
        "outcome-of-a-delivery-lost-in-a-deadlock",
        "service/webhooks/dispatcher.py",
        "await retry(partial(self._store, claim, outcome), took)",
        "await self._store(claim, outcome, took)",
        "tests/api/test_webhooks.py::test_an_outcome_that_meets_a_deadlock_is_stored",
    ),
    never(
        "repeated-update-reissues-a-cancelled-invoice",
        "service/submission/sending/submit.py",
        "is_reissue(row)",
        "tests/submission/test_cancel.py::test_a_repeated_update_of_a_cancelled_invoice_sends_no_second_document",
    ),
    always(
        "update-without-a-change-counts-as-one",
        "sql/queries/documents.sql",
        "s.is_changed or changed.document <> former.document",
        "tests/submission/test_cancel.py::test_a_repeated_update_of_a_cancelled_invoice_sends_no_second_document",
    ),
    removal(
        "last-owner-removed-by-a-race",
        "sql/queries/people.sql",
        "\n   for update",
        "tests/dashboard/test_sessions.py::test_two_owners_who_remove_each_other_leave_one",
    ),
    removal(
        "cancellation-without-its-claim",
        "service/submission/following/cancel.py",
        "        await order.guard(conn)\n",
        "tests/api/test_idempotency_claims.py::test_no_post_route_has_an_effect_without_its_key",
    ),
    always(
        "retryable-answer-kept",
        "service/http/idempotency.py",
        'not getattr(error, "retryable", False)',
        "tests/api/test_repetition.py::test_a_submit_that_sent_nothing_is_retried_with_its_key",
    ),
    Mutant(
        "large-page-in-one-response",
        "service/api/records.py",
        "BUDGET_BYTES = 1_000_000",
        "BUDGET_BYTES = 1_000_000_000_000",
        "tests/api/test_large_pages.py::test_every_list_streams_a_large_page",
    ),
    Mutant(
        "broken-page-looks-whole",
        "service/api/exports.py",
        "            request.transport.abort()\n",
        "            await response.write_eof()\n",
        "tests/api/test_large_pages.py::test_page_that_fails_midway_is_visibly_incomplete",
    ),
    removal(
        "refused-cancellation-believed",
        "service/submission/machine/cancellation.py",
        " not isinstance(error, Refused) and",
        "tests/submission/test_cancel.py::test_rejected_cancellation_of_a_cancelled_document_succeeds",
    ),
    Mutant(
        "unclear-cancellation-ends-at-once",
        "service/submission/machine/cancellation.py",
        "        if self.is_unclear:\n            return False\n",
        "        return True\n",
        "tests/submission/test_cancel.py::test_unclear_cancellation_is_polled_until_the_portal_shows_it",
    ),
    removal(
        "repeated-cancellation-forgets-the-first",
        "service/submission/following/cancel.py",
        ', row["sent_by"]',
        "tests/submission/test_cancel.py::test_repeated_cancellation_does_not_shorten_the_settling_time",
    ),
    never(
        "late-process-sends-a-cancellation",
        "service/submission/following/cancel.py",
        "time.monotonic() > self.cancellation.send_until",
        "tests/submission/test_cancel.py::test_process_with_an_expired_claim_sends_no_cancellation",
    ),
    removal(
        "note-beside-a-cancellation",
        DOCUMENTS,
        "\n   for share",
        "tests/submission/test_cancel.py::test_note_waits_for_a_lock_on_the_invoice",
    ),
    Mutant(
        "amount-read-before-the-lock",
        DOCUMENTS,
        "and d.deleted_at is null\n   for share;",
        "and d.deleted_at is null\n   for share of d;",
        "tests/submission/test_cancel.py::test_note_is_limited_by_the_amount_after_the_lock",
    ),
    Mutant(
        "cancelled-an-hour-too-late",
        "service/documents/states.py",
        "CANCEL_WINDOW = timedelta(hours=72)",
        "CANCEL_WINDOW = timedelta(hours=73)",
        "tests/api/test_specification_rules.py"
        "::test_a_state_allows_or_refuses_an_operation"
        "[cancel invoice document | found_valid, 259201 s old | 403]",
    ),
    Mutant(
        "unconfirmed-submit-not-looked-up",
        "service/submission/sending/submit.py",
        "        if stored is None:\n",
        "        if stored:\n",
        "tests/operations/test_pressure.py::test_a_submit_whose_commit_is_not_confirmed_goes_on",
    ),
    Mutant(
        "rejection-of-a-resent-document-believed",
        "service/submission/machine/state_machine.py",
        "    elif submission.possibly_received and event.rejected:\n",
        "    elif False:\n",
        f"{UNKNOWN}::test_a_rejection_of_what_was_sent_before_is_not_believed",
    ),
    Mutant(
        "absent-part-not-marked-as-sent",
        "service/submission/machine/state_machine.py",
        'parts.append(Part(frozenset(absent), "Queued", possibly_received=True))',
        'parts.append(Part(frozenset(absent), "Queued"))',
        f"{UNKNOWN}::test_absent_documents_that_are_sent_again_are_marked",
    ),
    removal(
        "claims-without-a-result-not-reset",
        SUBMISSIONS,
        "       claims = 0,\n",
        "tests/submission/test_claims.py::test_a_stored_result_resets_the_claims_without_a_result",
    ),
)

#: A company cannot read or change data of another.
APART = (
    Mutant(
        "name-of-another-company-shown",
        "sql/queries/people.sql",
        "case when m.accepted_at is null then m.name else u.name end as name",
        "u.name",
        f"{ROLES}::test_companies_neither_see_nor_choose_the_name_of_anothers_person",
    ),
    Mutant(
        "form-overwrites-a-change-that-it-has-not-shown",
        "service/dashboard/operations.py",
        '.get(ETAG) if method == "PUT" else None',
        '.get(ETAG) if method == "PATCH" else None',
        "tests/dashboard/test_invoice_form.py"
        "::test_a_form_does_not_overwrite_a_change_that_it_has_not_shown",
    ),
    removal(
        "webhooks-counted-without-a-lock",
        "service/api/webhooks.py",
        "        await sql.company_lock(conn, company_id=company)\n",
        "tests/api/test_webhooks.py::test_concurrent_creations_do_not_exceed_the_endpoint_limit[0-40]",
    ),
    Mutant(
        "internal-name-reported",
        "service/webhooks/dispatcher.py",
        'Outcome(error="connection", cause="internal address")',
        'Outcome(error="address", cause="internal address")',
        "tests/api/test_webhooks.py::test_an_internal_name_fails_like_an_unknown_name",
    ),
    Mutant(
        "hanging-receivers-take-all-places",
        "sql/functions/webhooks/claim_webhook_deliveries.sql",
        "share - held, (free - held + 1) / 2)",
        "999)",
        "tests/api/test_webhooks.py::test_endpoints_that_become_slow_together_do_not_delay_others",
    ),
    removal(
        "slow-name-servers-block-all-lookups",
        "service/webhooks/dispatcher.py",
        "            resolver=Resolver(timeout),\n",
        "tests/api/test_webhooks.py::test_slow_name_servers_of_one_company_do_not_delay_another",
    ),
    Mutant(
        "statement-without-the-company",
        DOCUMENTS,
        "where company_id = :company_id and kind = '{kind}' and code = :code",
        "where :company_id::bigint > 0 and kind = '{kind}' and code = :code",
        "tests/security/test_tenant_isolation.py::test_every_statement_names_the_owner_of_each_table",
    ),
    Mutant(
        "account-reads-as-the-company-with-its-id",
        "sql/migrations/0001_tenancy.sql",
        "return nullif(current_setting('app.company_id', true), '')::bigint;",
        "return coalesce(nullif(current_setting('app.company_id', true), ''),\n"
        "                nullif(current_setting('app.account_id', true), ''))::bigint;",
        f"{EQUAL_IDS}::test_owners_with_equal_ids_share_nothing[policies]",
    ),
    Mutant(
        "response-of-the-owner-with-the-same-id",
        "sql/queries/idempotency.sql",
        " where owner_kind = :owner_kind and owner_id = :owner_id and route = :route"
        " and key = :key\n   and created_at",
        " where :owner_kind::text <> '' and owner_id = :owner_id and route = :route"
        " and key = :key\n   and created_at",
        f"{EQUAL_IDS}::test_owners_with_equal_ids_share_nothing[predicates]",
    ),
    Mutant(
        "key-revoked-for-the-owner-with-the-same-id",
        "sql/queries/api_keys.sql",
        "   where owner_kind = :owner_kind and owner_id = :owner_id and key_id = :key_id\n",
        "   where owner_id = :owner_id and key_id = :key_id\n",
        "tests/security/test_equal_ids.py::test_an_owner_changes_nothing_of_another_with_its_id[account-predicates]",
    ),
    removal(
        "key-of-any-surface",
        "sql/functions/companies/api_key_get.sql",
        "k.owner_kind = api_key_get.owner_kind and ",
        "tests/security/test_equal_ids.py::test_a_key_is_unknown_on_the_other_surface[predicates]",
    ),
    Mutant(
        "table-without-row-security",
        LAST_MIGRATION,
        "",
        "alter table document_links no force row level security;",
        "tests/security/test_tenant_isolation.py::test_the_migrated_schema_separates_companies_and_accounts",
    ),
    Mutant(
        "view-of-an-extension-is-a-gap",
        "sql/queries/foundation.sql",
        "('pg_class'::regclass, c.oid) not in",
        "('pg_class'::regclass, 0::oid) not in",
        "tests/security/test_tenant_isolation.py::test_objects_of_an_extension_are_no_gap",
    ),
    Mutant(
        "function-of-an-extension-is-a-gap",
        "sql/queries/foundation.sql",
        "('pg_proc'::regclass, p.oid) not in",
        "('pg_proc'::regclass, 0::oid) not in",
        "tests/security/test_tenant_isolation.py::test_objects_of_an_extension_are_no_gap",
    ),
    Mutant(
        "foreign-key-without-the-company",
        LAST_MIGRATION,
        "",
        "alter table documents add constraint documents_id_once unique (id);\n"
        "alter table submitted_documents\n"
        "  add constraint submitted_documents_of_document\n"
        "  foreign key (document_id) references documents (id);",
        "tests/security/test_tenant_isolation.py::test_the_migrated_schema_separates_companies_and_accounts",
    ),
    never(
        "sent-under-an-unverified-tin",
        "service/submission/sending/submit.py",
        'document.issuer["tin_verified_at"] is None',
        "tests/security/test_tin_ownership.py::test_a_submit_with_an_unverified_tin_is_refused",
    ),
    removal(
        "unverified-claim-counts-as-a-company-of-the-tin",
        "sql/functions/companies/companies_of_tin.sql",
        " and c.tin_verified_at is not null",
        "tests/submission/test_document_identity.py::test_unverified_claims_change_no_evidence_and_mask_no_uuid",
    ),
    removal(
        "second-verification-of-a-tin",
        REFUSE_TAKEN_TIN,
        "    and (old.tin_verified_at is not null or new.tin_verified_at is null)",
        f"{TIN_CLAIMS}::test_of_concurrent_verifications_of_one_tin_one_succeeds",
    ),
    removal(
        "tin-decided-without-its-lock",
        REFUSE_TAKEN_TIN,
        "  perform public.lock_tin(new.tin);\n",
        f"{TIN_CLAIMS}::test_of_concurrent_verifications_of_one_tin_one_succeeds",
    ),
    never(
        "lost-claim-without-an-event",
        REFUSE_TAKEN_TIN,
        "new.tin_verified_at is not null",
        f"{TIN_CLAIMS}::test_the_first_verification_decides_between_claims",
    ),
    removal(
        "claim-on-a-shared-tin-counts-as-lost",
        "sql/queries/overview.sql",
        "           and not exists (select from shared_tins s where s.tin = c.tin)",
        f"{TIN_CLAIMS}::test_a_lost_claim_needs_attention",
    ),
    removal(
        "every-update-verifies-a-tin",
        "service/api/companies.py",
        ' and "tin_code" in body',
        f"{TIN_CLAIMS}::test_an_automatic_verification_wins_over_claims",
    ),
    removal(
        "data-may-be-cached",
        "service/http/middleware.py",
        ", no-store",
        "tests/api/test_headers.py::test_every_route_sends_the_headers_on_errors",
    ),
    Mutant(
        "secret-bound-to-no-company",
        "service/db/encryption.py",
        'return f"{company_id:d} {purpose}".encode()',
        "return purpose.encode()",
        "tests/security/test_secrets_at_rest.py::test_a_secret_opens_only_for_its_company_and_purpose",
    ),
    Mutant(
        "forwarded-address-of-any-sender",
        "service/http/client_address.py",
        "if address is None or not any(address in network for network in trusted):",
        "if address is None or not trusted:",
        "tests/security/test_client_address.py::test_client_is_the_last_address_that_is_no_trusted_proxy",
    ),
    Mutant(
        "proxy-passes-the-clients-address-header",
        "deploy/nginx/einvoice.conf",
        "X-Forwarded-For $remote_addr;",
        'X-Forwarded-For "$http_x_forwarded_for";',
        "tests/deployment/test_nginx.py::test_forwarded_address_of_the_client_is_ignored",
    ),
    Mutant(
        "metrics-through-the-proxy",
        "deploy/nginx/einvoice.conf",
        "location = /metrics {",
        "location = /metrics-of-the-operator {",
        "tests/deployment/test_nginx.py::test_operator_paths_are_hidden_in_every_encoding",
    ),
    never(
        "ready-while-stopping",
        "service/api/health.py",
        "request.app[app_keys.SHUTDOWN].has_begun",
        "tests/submission/test_crash.py::test_draining_service_is_not_ready_and_serves_requests",
    ),
    never(
        "any-schema-accepted",
        "service/db/migrations.py",
        "not is_applied",
        "tests/operations/test_migration_logins.py::test_service_login_rejects_a_database_of_another_version",
    ),
    Mutant(
        "route-without-a-key",
        "service/http/middleware.py",
        'OPEN = {\n    "/healthz",',
        'OPEN = {\n    "/api/events",\n    "/healthz",',
        "tests/security/test_auth.py::test_every_route_checks_the_key_first",
    ),
    Mutant(
        "revocation-not-announced",
        "sql/migrations/0001_tenancy.sql",
        "update of secret_sha256, expires_at, revoked_at on api_keys",
        "update of secret_sha256, expires_at on api_keys",
        "tests/operations/test_dedicated_session.py::test_revoking_a_key_notifies_every_session",
    ),
    Mutant(
        "keys-kept-without-a-recent-heartbeat",
        "service/db/session.py",
        'Seen(row["identity"], row["at"], began)',
        'Seen(row["identity"], row["at"], time.monotonic())',
        f"{KEY_CACHE}::test_a_heartbeat_begins_before_its_statements",
    ),
    always(
        "keys-kept-without-notifications",
        "service/db/session.py",
        'self._listeners.keys() <= set(row["channels"])',
        f"{KEY_CACHE}::test_a_session_that_does_not_listen_has_no_heartbeat",
    ),
    Mutant(
        "keys-never-read-again",
        "service/http/api_keys.py",
        "now < self._last_seen(key).began + CACHE_SECONDS",
        "now < self._last_seen(key).began + 3600",
        f"{KEY_CACHE}::test_a_late_session_proves_nothing_about_a_key",
    ),
    removal(
        "keys-proved-by-another-database",
        "service/http/api_keys.py",
        " heartbeat.identity ==",
        f"{KEY_CACHE}::test_the_session_of_another_database_proves_nothing_about_a_key",
    ),
    removal(
        "keys-kept-after-a-lost-session",
        "service/app.py",
        "ring.forget_all, ",
        f"{KEY_CACHE}::test_a_key_is_read_once_for_as_long_as_its_session_answers",
    ),
    Mutant(
        "prepayment-over-the-value",
        "service/documents/money.py",
        "    if prepaid > total:",
        "    if prepaid > total + 1000:",
        "tests/documents/test_money.py"
        "::test_a_settlement_over_the_amount_of_the_document_is_refused",
    ),
    removal(
        "note-adjusts-by-what-is-left-to-pay",
        "sql/queries/submissions.sql",
        " + n.prepaid_amount",
        "tests/api/test_notes.py::test_a_prepaid_invoice_can_be_credited_up_to_its_value",
    ),
    removal(
        "prepaid-notes-not-counted",
        DOCUMENTS,
        " + o.prepaid_amount",
        "tests/api/test_notes.py::test_a_note_being_submitted_counts_with_its_prepayment",
    ),
    removal(
        "import-of-codes-not-announced",
        "service/commands/codes.py",
        '        await sql.notify(conn, channel="code_lists_changed", payload="")\n',
        "tests/operations/test_code_lists.py::test_an_import_notifies_a_running_process",
    ),
    removal(
        "code-tables-not-pinned",
        "service/http/middleware.py",
        "    codes.pin_tables()\n",
        "tests/operations/test_code_lists.py::test_a_request_keeps_the_tables_with_which_it_began",
    ),
    removal(
        "missed-import-of-codes",
        "service/app.py",
        ", lists.woken.set",
        "tests/operations/test_code_lists.py"
        "::test_an_import_without_notification_is_noticed_after_a_lost_session",
    ),
    Mutant(
        "impossible-id-distinguished",
        "service/http/requests.py",
        "    if not _ID.fullmatch(text) or int(text) > MAX_ID:\n        raise not_found(noun)",
        "    if not _ID.fullmatch(text) or int(text) > MAX_ID:\n"
        '        raise NotFound(f"{noun} {text[:9]} not found")',
        "tests/api/test_invoices.py::test_every_route_answers_invalid_ids_with_the_same_404",
    ),
    removal(
        "own-client-used-for-another-tin",
        "service/portal/client.py",
        " and own.tin == tin",
        f"{OWN_CLIENTS}::test_own_credentials_are_not_used_for_another_tin",
    ),
    Mutant(
        "login-changed-while-a-document-is-under-way",
        "sql/queries/companies.sql",
        "status in ('Submitting', 'Submitted'))",
        "status = 'Submitting')",
        f"{OWN_CLIENTS}::test_the_login_is_not_changed_while_a_document_is_under_way",
    ),
    removal(
        "login-changed-without-waiting-for-submissions",
        "service/api/portal_credentials.py",
        "    await sql.company_lock_alone(conn, company_id=company)\n",
        f"{OWN_CLIENTS}::test_a_change_waits_for_a_submission_that_is_being_stored",
    ),
    Mutant(
        "link-of-another-document-revoked",
        "sql/queries/links.sql",
        "     and document_id = :document_id\n  returning",
        "     and :document_id::bigint > 0\n  returning",
        "tests/api/test_links.py::test_a_link_of_another_document_is_unknown",
    ),
    always(
        "pause-of-an-own-client-holds-all-companies",
        "service/submission/context.py",
        "error.own_client_id is None",
        f"{OWN_CLIENTS}::test_a_pause_of_an_own_client_does_not_hold_other_companies",
    ),
    Mutant(
        "secret-changed-without-a-recent-password",
        "service/dashboard/pages.py",
        "if page.return_to is not None and not request[SESSION].is_recent:",
        "if page.return_to is None and not request[SESSION].is_recent:",
        "tests/dashboard/test_settings_pages.py::test_a_secret_is_changed_only_after_the_password_was_entered[/settings/portal/credentials/remove]",
    ),
)

#: Amounts, limits, lists and signatures follow the contract.
EXACT = (
    Mutant(
        "half-a-cent-rounded-to-even",
        "service/documents/money.py",
        "rounding=ROUND_HALF_UP)",
        'rounding="ROUND_HALF_EVEN")',
        "tests/documents/test_money.py",
    ),
    Mutant(
        "amounts-as-binary-floats",
        "service/json_codec.py",
        "float_hook=_parse_decimal",
        "float_hook=float",
        "tests/api/test_invoices.py::test_numbers_are_returned_exactly_as_sent",
    ),
    Mutant(
        "repeated-member-parsed-fast",
        "service/json_codec.py",
        "if is_whole else None",
        "if written else None",
        f"{PARSING}::test_what_msgspec_would_accept_is_left_to_the_careful_parser",
    ),
    removal(
        "long-integer-parsed-fast",
        "service/json_codec.py",
        " or _LONG_INTEGER in raw.translate(_TO_ZEROS)",
        f"{PARSING}::test_what_msgspec_would_accept_is_left_to_the_careful_parser",
    ),
    Mutant(
        "newer-schema-accepted",
        "service/db/compatibility.py",
        "if excluding := await sql.schema_excluding(conn, known=list(known)):",
        'if excluding := "":',
        "tests/operations/test_operator_errors.py::test_a_newer_schema_is_refused_by_its_name",
    ),
    Mutant(
        "migration-despite-an-excluded-version",
        "service/db/compatibility.py",
        "if rows := await sql.sessions_before(conn, application=APPLICATION, version=oldest):",
        "if rows := []:",
        f"{COMPATIBILITY}::test_migration_that_excludes_a_running_version_is_refused",
    ),
    Mutant(
        "older-version-replaces-objects",
        "service/db/migrations.py",
        "    return None\n",
        "    return []\n",
        "tests/operations/test_schema_objects.py::test_older_version_keeps_the_objects_of_a_newer_schema",
    ),
    removal(
        "excluded-process-continues",
        "service/db/session.py",
        "            signal.raise_signal(signal.SIGTERM)\n",
        f"{COMPATIBILITY}::test_running_process_stops_after_a_migration_that_excludes_it",
    ),
    removal(
        "secret-in-the-first-log-line",
        "service/config.py",
        ' "***" if text and setting.parser.is_secret else',
        "tests/operations/test_log_lines.py::test_settings_in_the_log_mask_every_secret",
    ),
    removal(
        "invalid-trace-id-accepted",
        "service/logs.py",
        ' or (found["version"] == "00" and found["rest"])',
        "tests/operations/test_log_lines.py::test_trace_id_is_read_from_a_valid_traceparent",
    ),
    Mutant(
        "outage-of-the-portal-takes-processes-out-of-service",
        "service/api/health.py",
        '{"status": "degraded" if summary["reasons"] else "ok", **summary}',
        '{"status": "degraded", **summary}, 503 if summary["reasons"] else 200',
        "tests/operations/test_readiness.py::test_unreachable_portal_degrades_the_service_until_it_responds",
    ),
    Mutant(
        "outage-of-the-login-hidden-by-another-server",
        "service/portal/transport.py",
        "self._unreachable.pop(origin, None)",
        "self._unreachable.clear()",
        "tests/operations/test_readiness.py::test_response_of_one_server_of_the_portal_does_not_hide_the_outage_of_another",
    ),
    removal(
        "documents-with-an-outcome-counted-as-waiting",
        "sql/functions/submissions/waiting_work.sql",
        " and not s.has_outcome",
        "tests/operations/test_metrics.py::test_accepted_submissions_with_an_outcome_do_not_wait",
    ),
    never(
        "start-without-the-key-of-the-secrets",
        "service/commands/bootstrap.py",
        "stored and not stored & known",
        "tests/operations/test_operator_errors.py::test_a_start_without_the_key_of_the_stored_secrets_is_refused",
    ),
    removal(
        "check-of-companies-after-a-refused-operator",
        "service/submission/operator/connection_check.py",
        " if company.own or self._operator_works else NO_OPERATOR",
        "tests/operations/test_check_portal.py::test_a_refused_operator_login_is_attempted_once",
    ),
    never(
        "check-with-mixed-addresses",
        "service/portal/addresses.py",
        "len(set(environments.values()) - {None}) > 1",
        "tests/operations/test_check_portal.py::test_nothing_is_requested_while_addresses_are_mixed",
    ),
    never(
        "check-for-an-unverified-tin",
        "service/submission/operator/connection_check.py",
        'company.lacks("/tin_code")',
        "tests/operations/test_check_portal.py::test_nothing_is_requested_for_an_unverified_tin",
    ),
    never(
        "check-without-identity-of-the-certificate",
        "service/submission/operator/connection_check.py",
        "company.has_own_login or not self._config.portal_intermediary",
        "tests/operations/test_check_portal.py::test_a_certificate_names_the_company_unless_an_intermediary_submits",
    ),
    removal(
        "lock-of-first-starts-without-transaction",
        "service/commands/serve.py",
        ", conn.transaction()",
        "tests/operations/test_operator_errors.py::test_a_first_start_waits_while_another_creates_the_demo_company",
    ),
    skipped(
        "demo-company-next-to-others",
        "service/commands/serve.py",
        "return describe_others(others)",
        "tests/operations/test_operator_errors.py::test_an_existing_database_with_other_companies_gets_no_demo_company",
    ),
    Mutant(
        "webhook-change-audited-without-values",
        "sql/queries/webhooks.sql",
        "fingerprint(becomes), value_changes(was, becomes)",
        "fingerprint(becomes), null",
        "tests/dashboard/test_activity.py::test_changes_of_a_webhook_are_shown_without_its_secret",
    ),
    Mutant(
        "large-record-delivered",
        "sql/queries/webhooks.sql",
        "'record', case when fits then record end,",
        "'record', record,",
        "tests/api/test_webhooks.py::test_a_record_above_the_size_limit_is_left_out",
    ),
    Mutant(
        "endless-response-read",
        "service/webhooks/dispatcher.py",
        "left -= len(piece)",
        "left -= 0",
        "tests/api/test_webhooks.py::test_an_endless_response_is_cut_off",
    ),
    Mutant(
        "webhook-signed-for-another-time",
        "service/webhooks/signature.py",
        '"webhook-timestamp": str(timestamp),',
        '"webhook-timestamp": str(timestamp - 1),',
        "tests/api/test_webhooks.py::test_an_event_is_delivered_and_signed",
    ),
    Mutant(
        "rate-limit-counts-twice",
        "service/http/limits.py",
        "self._buckets[bucket] = tokens - (tokens >= 1), now",
        "self._buckets[bucket] = tokens - 2 * (tokens >= 1), now",
        "tests/security/test_auth.py::test_company_over_its_rate_limit_gets_a_429_with_retry_after",
    ),
    removal(
        "page-urls-without-filters",
        "service/api/pagination.py",
        ", **self.kept",
        "tests/api/test_lists.py::test_page_urls_keep_the_filters_that_have_a_value",
    ),
    Mutant(
        "bounded-total-called-exact",
        "sql/functions/documents/document_search.sql",
        "$8 is not null or $9 is null or counted.total < $9",
        "$8 is not null or $9 is null or counted.total <= $9",
        "tests/api/test_lists.py::test_count_to_bounds_the_total_of_a_search",
    ),
    Mutant(
        "called-operation-reads-the-path-of-the-page",
        "service/http/requests.py",
        "request.get(app_keys.CALLED, request.match_info)[part]",
        "request.match_info[part]",
        "tests/api/test_links.py"
        "::test_a_link_to_each_kind_of_document_opens_its_page_until_revoked",
    ),
    Mutant(
        "called-operation-streams-to-the-browser",
        "service/api/exports.py",
        "if app_keys.CALLED in request:",
        "if request.method is None:",
        "tests/dashboard/test_documents.py::test_a_page_of_large_requests_is_complete",
    ),
    Mutant(
        "note-in-the-home-currency",
        "service/dashboard/documents.py",
        "return target.currency if target else",
        "return HOME_CURRENCY if target else",
        "tests/dashboard/test_documents.py::test_a_note_names_its_invoice_and_has_its_currency",
    ),
    Mutant(
        "total-not-moved-with-the-status",
        "sql/migrations/0002_documents.sql",
        "old.deleted_at, -1)",
        "old.deleted_at, 0)",
        "tests/api/test_totals.py::test_totals_follow_every_change",
    ),
    Mutant(
        "documents-of-deleted-records-counted",
        "sql/migrations/0002_documents.sql",
        "set deleted_at = new.deleted_at\n     where company_id = new.company_id and document_id",
        "set deleted_at = old.deleted_at\n     where company_id = new.company_id and document_id",
        "tests/api/test_references.py::test_rejected_documents_are_listed_across_invoices",
    ),
    Mutant(
        "self-billed-record-without-its-buyer",
        "sql/views/invoice_records.sql",
        "then company_as_buyer(d.company_id)",
        "then buyer",
        "tests/api/test_invoices.py::test_the_company_is_the_buyer_in_a_self_billed_record",
    ),
    removal(
        "wait-of-the-portal-forgotten",
        "service/submission/machine/state_machine.py",
        ", delay=_delay_after(event, NO_DELAY)",
        "tests/api/test_error_codes.py::test_a_throttled_submission_says_how_long_the_portal_asks_to_wait",
    ),
    Mutant(
        "creation-answers-with-another-invoice",
        DOCUMENTS,
        "select stored.id, own.*",
        "select coalesce((select max(id) from documents where company_id = :company_id), stored.id)"
        " as id, own.*",
        "tests/api/test_attribution.py::test_concurrent_creations_with_equal_codes_get_their_own_answers",
    ),
    Mutant(
        "outcome-of-a-request-for-each-holder-of-the-link",
        "sql/queries/einvoice_requests.sql",
        "and r.link_id = :link_id and r.secret_sha256 = :secret_sha256",
        "and r.link_id = :link_id and :secret_sha256::bytea is not null",
        "tests/dashboard/test_receipts.py::test_a_link_shows_what_became_of_a_request_to_its_buyer_alone",
    ),
    Mutant(
        "excluded-activity-is-consolidated",
        "service/documents/consolidation.py",
        "if not terms.relaxes(day):",
        "if terms.relaxes(day):",
        "tests/api/test_consolidated_invoices.py::test_an_excluded_activity_has_its_reason_and_what_to_do",
    ),
    Mutant(
        "consolidation-answers-with-another-record",
        DOCUMENTS,
        "select stored.id, own.*",
        "select coalesce((select max(id) from documents where company_id = :company_id"
        " and kind = 'consolidated_invoice'), stored.id) as id, own.*",
        "tests/api/test_attribution.py::test_concurrent_consolidated_invoices_get_their_own_answers",
    ),
    Mutant(
        "request-answers-with-another-record",
        "sql/queries/einvoice_requests.sql",
        "select id from stored;",
        "select coalesce(max(r.id), max(s.id)) from stored s\n"
        "  left join einvoice_requests r on r.company_id = :company_id;",
        "tests/api/test_attribution.py::test_concurrent_buyer_requests_get_their_own_answers",
    ),
    Mutant(
        "latest-caller-gets-the-connection",
        "service/fair_queue.py",
        "waiters.popleft()",
        "waiters.pop()",
        "tests/operations/test_pool.py::test_a_connection_goes_to_the_caller_that_has_waited_longest",
    ),
    Mutant(
        "client-served-twice-before-the-others",
        "service/fair_queue.py",
        "self._waiters[client] = waiters  # Behind all others.",
        "self._waiters = {client: waiters, **self._waiters}",
        "tests/operations/test_fair_queue.py::test_clients_are_served_in_turn",
    ),
    always(
        "one-client-gets-all-places",
        "service/fair_queue.py",
        "(client is None or self._held[client] * SHARE <= self._free)",
        "tests/operations/test_fair_queue.py::test_a_client_alone_leaves_places_for_others",
    ),
    removal(
        "place-of-a-cancelled-caller-lost",
        "service/fair_queue.py",
        "            else:  # It was served, and cancelled at the same time.\n"
        "                self.leave(client)\n",
        "tests/operations/test_fair_queue.py::test_a_caller_that_is_cancelled_when_it_is_served_passes_the_place_on",
    ),
    Mutant(
        "cancelled-work-runs-next-to-other-work",
        "service/offload.py",
        'ThreadPoolExecutor(1, "offload")',
        'ThreadPoolExecutor(2, "offload")',
        "tests/operations/test_fair_queue.py::test_work_that_fails_or_is_cancelled_releases_the_thread",
    ),
    Mutant(
        "turns-of-a-client-overlap",
        "service/offload.py",
        "        await queue.enter(WAIT_SECONDS)\n",
        "        queue.enter_at_once()\n",
        "tests/operations/test_fair_queue.py::test_turns_of_a_client_do_not_overlap_and_those_of_others_do",
    ),
    removal(
        "page-without-a-turn",
        "service/dashboard/pages.py",
        " turn() if page.is_in_turn else",
        "tests/operations/test_fair_queue.py::test_pages_of_a_company_wait_for_their_turn",
    ),
    removal(
        "list-download-in-turn",
        "service/dashboard/pages.py",
        " and not self.is_stream",
        "tests/operations/test_fair_queue.py::test_pages_of_a_company_wait_for_their_turn",
    ),
    never(
        "known-keys-wait-behind-strangers",
        "service/http/api_keys.py",
        "key and hmac.compare_digest(key.digest, digest)",
        "tests/operations/test_fair_queue.py::test_a_known_key_does_not_wait_behind_strangers",
    ),
    skipped(
        "rendered-values-left-to-the-collector",
        "service/templates.py",
        "context.vars.clear()",
        "tests/operations/test_templates.py::test_rendering_frees_its_values_at_once",
    ),
    never(
        "start-with-a-server-that-loses-commits",
        "service/commands/bootstrap.py",
        'unsafe and config.database_durability == "on"',
        "tests/operations/test_durability.py::test_a_server_that_can_lose_commits_stops_the_start",
    ),
    Mutant(
        "network-known-from-before-a-reset",
        "sql/queries/people.sql",
        "where r.user_id = :user_id and r.action = 'reset'), 0)",
        "where r.user_id = 0 and r.action = 'reset'), 0)",
        "tests/dashboard/test_account.py::test_a_network_is_not_known_after_a_reset_by_the_operator",
    ),
    removal(
        "rate-legal-before-its-day",
        "service/documents/doubts.py",
        " if since <= day",
        "tests/api/test_mistakes.py::test_a_rate_is_legal_from_its_day",
    ),
    always(
        "registration-of-the-company-not-read",
        "service/documents/doubts.py",
        'self.unless is None or (company.get(self.unless) or "").strip() in NO_NUMBER',
        "tests/api/test_mistakes.py::test_a_correct_invoice_has_no_warnings",
    ),
    removal(
        "update-without-doubts",
        "service/api/documents.py",
        "        warn_of_doubts(request, draft.doubts, row)\n",
        "tests/api/test_mistakes.py::test_a_mistake_has_a_warning",
    ),
    skipped(
        "idle-connection-keeps-the-request",
        "service/http/server.py",
        "request.pop(app_keys.BODY, None)",
        "tests/operations/test_aiohttp_internals.py::test_an_idle_connection_keeps_no_body",
    ),
    skipped(
        "idle-connection-keeps-the-response",
        "service/http/server.py",
        "resp.body = None",
        "tests/operations/test_aiohttp_internals.py::test_an_idle_connection_keeps_no_body",
    ),
    removal(
        "companies-share-the-place-of-strangers",
        "service/http/api_keys.py",
        "        CLIENT.set(_client(key.owner))\n",
        "tests/operations/test_fair_queue.py::test_a_company_cannot_occupy_all_connections",
    ),
    Mutant(
        "former-name-kept-by-an-update",
        DOCUMENTS,
        "buyer_text = searched_party(:buyer::json)",
        "buyer_text = coalesce(buyer_text, searched_party(:buyer::json))",
        "tests/api/test_lists.py::test_query_finds_the_present_name_of_a_buyer",
    ),
    Mutant(
        "filter-by-the-beginning-of-a-tin",
        "sql/functions/documents/documents_filter.sql",
        "'case when %s = normalised_tin(",
        "'case when %s is not null or  = normalised_tin(",
        "tests/api/test_lists.py::test_buyers_are_found_by_tin",
    ),
    Mutant(
        "list-by-status-with-deleted-documents",
        "sql/functions/documents/documents_filter.sql",
        "' where s.company_id = $1 and s.kind = $2 and s.deleted_at is null'",
        "' where s.company_id = $1 and s.kind = $2'",
        "tests/api/test_lists.py::test_deleted_invoices_are_not_listed_or_counted",
    ),
    Mutant(
        "list-by-status-with-documents-of-another-kind",
        "sql/functions/documents/documents_filter.sql",
        "' where s.company_id = $1 and s.kind = $2 and s.deleted_at is null'",
        "' where s.company_id = $1 and $2 > '''' and s.deleted_at is null'",
        "tests/api/test_lists.py::test_list_is_filtered_by_status",
    ),
    Mutant(
        "cursor-repeats-its-record",
        "sql/functions/documents/document_search.sql",
        "case when direction = 'desc' then '<' else '>' end",
        "case when direction = 'desc' then '<=' else '>=' end",
        "tests/api/test_lists.py::test_a_walk_by_after_misses_and_repeats_nothing",
    ),
    always(
        "restored-data-adopted-without-a-hold",
        "sql/functions/failovers/record_database_identity.sql",
        "not exists (select from public.submissions s where s.first_sent_at is not null)",
        "tests/submission/test_hold.py::test_an_unknown_database_is_held_if_it_has_sends",
    ),
    never(
        "events-before-a-change-of-the-endpoint-lost",
        "sql/queries/webhooks.sql",
        "(not :enabled or e.types <> :types::text[])",
        "tests/api/test_webhooks.py::test_events_before_a_change_of_the_endpoint_are_delivered",
    ),
    removal(
        "410-of-a-former-url-disables-the-endpoint",
        "service/webhooks/dispatcher.py",
        ' and row["url"] == claim["url"]',
        "tests/api/test_webhooks.py::test_410_of_a_former_url_does_not_disable_the_endpoint",
    ),
    Mutant(
        "other-spelling-of-a-tin-not-found",
        "sql/functions/documents/searched_party.sql",
        "normalised_tin(party ->> 'tin')",
        "party ->> 'tin'",
        "tests/api/test_lists.py::test_each_spelling_of_a_tin_is_found",
    ),
    removal(
        "kind-of-another-type-stored",
        "sql/migrations/0002_documents.sql",
        " type not like '%NOTE' and type not like 'CONSOLIDATED%'\n              and",
        "tests/api/test_kinds.py::test_a_type_of_another_kind_is_not_stored",
    ),
    Mutant(
        "changed-name-not-found",
        "sql/migrations/0002_documents.sql",
        "add_parts after insert or update of buyer_text on",
        "add_parts after insert on",
        "tests/api/test_lists.py::test_query_finds_the_present_name_of_a_buyer",
    ),
)

APPROVALS = "tests/api/test_einvoice_requests.py::test_approval"
NOTES = "tests/api/test_notes.py"

#: Responses, records and events say the same about a document, and what they say is true.
OUTCOMES = (
    never(
        "debit-note-cancelled-though-credited",
        "service/submission/following/cancel.py",
        'latest["status"] == "Valid"',
        f"{NOTES}::test_a_debit_note_whose_amount_was_credited_is_not_cancelled",
    ),
    Mutant(
        "debit-note-cancelled-without-a-lock-on-its-invoice",
        DOCUMENTS,
        "then coalesce(invoice_id, consolidated_invoice_id) end])\n           from documents",
        "then null end])\n           from documents",
        f"{NOTES}::test_a_credit_and_the_cancellation_of_its_debit_note_are_exclusive",
    ),
    never(
        "debit-note-being-cancelled-is-credited",
        DOCUMENTS,
        "os.status = 'Valid'",
        f"{NOTES}::test_the_amount_of_a_debit_note_being_cancelled_cannot_be_credited",
    ),
    skipped(
        "second-request-approved-without-effect",
        "service/api/einvoice_requests.py",
        "raise has_buyer()",
        f"{APPROVALS}_of_another_request_for_a_finalised_invoice_is_a_conflict",
    ),
    Mutant(
        "other-requests-for-an-invoice-stay-pending",
        "sql/queries/einvoice_requests.sql",
        "     and r.id <> :id\n",
        "     and r.id <> :id and false\n",
        f"{APPROVALS}_rejects_other_pending_requests_for_the_invoice",
    ),
    removal(
        "request-for-another-invoice-rejected",
        "sql/queries/einvoice_requests.sql",
        "     and not exists (select from pending_invoices_named(:company_id, r.invoice_code))\n",
        f"{APPROVALS}_keeps_requests_that_name_another_pending_invoice",
    ),
    never(
        "repeated-approval-recorded-again",
        "service/api/einvoice_requests.py",
        'was_approved and body == {"status": "Approve"}',
        "tests/api/test_einvoice_requests.py::test_repeated_approval_changes_nothing",
    ),
    skipped(
        "approvals-of-one-invoice-not-serialised",
        "service/api/einvoice_requests.py",
        'await sql.transaction_lock(conn, name=f"approvals {company}")',
        "tests/api/test_einvoice_requests.py::"
        "test_concurrent_requests_for_one_invoice_finalise_it_once",
    ),
    Mutant(
        "refused-login-repeated-after-seconds",
        "service/submission/machine/failures.py",
        "return retry_after(max(asked, PERSON_SECONDS))",
        "return retry_after(asked)",
        "tests/api/test_error_codes.py::test_a_failed_submission_has_its_code",
    ),
)

CORE_RULES = "tests/sandbox/test_sandbox_rules.py::test_an_invalid_core_field_is_rejected_at_once"
#: Preflight and the sandbox know the rules of the portal, and the sandbox reads documents safely.
PORTAL_RULES = (
    Mutant(
        "document-type-of-xml-allowed",
        "service/sandbox/xml_documents.py",
        "    def doctype(self",
        "    def ignored(self",
        "tests/sandbox/test_sandbox_xml.py::test_unsafe_or_malformed_xml_is_rejected",
    ),
    Mutant(
        "depth-of-xml-unlimited",
        "service/sandbox/xml_documents.py",
        "if self.depth > MOST_DEPTH:",
        "if self.depth > 10**6:",
        "tests/sandbox/test_sandbox_xml.py::test_unsafe_or_malformed_xml_is_rejected",
    ),
    never(
        "note-for-a-note-accepted",
        "service/sandbox/validators/other_documents.py",
        'original["type"] in NOTES',
        "tests/sandbox/test_sandbox_rules.py::test_an_invalid_reference_of_a_note_fails_step_6",
    ),
    always(
        "phone-na-of-a-named-buyer-accepted",
        "service/sandbox/validators/core_fields.py",
        'party.is_public or party.role == "SUPPLIER"',
        "tests/sandbox/test_sandbox_rules.py::test_an_invalid_core_field_is_rejected_at_once[AccountingCustomerParty.0.Party.0.Contact.0.Telephone.0._-NA-CF410]",
    ),
    never(
        "phone-na-of-a-named-buyer-ready",
        "service/documents/checks/party.py",
        "place.side == 1 and not _is_general_public(place)",
        "tests/documents/test_preflight.py::test_a_rule_applies_from_its_effective_date",
    ),
    Mutant(
        "city-of-an-unknown-address-required",
        "service/documents/checks/party.py",
        '"/address/city": has_line_only',
        '"/address/city": False',
        "tests/documents/test_preflight.py::test_an_unknown_address_needs_only_its_state",
    ),
    always(
        "taxable-amount-of-a-type-counted-twice",
        "service/documents/money.py",
        "key not in counted",
        "tests/documents/test_money.py",
    ),
)

STANDBY, STANDBY_TESTS = "service/db/standby.py", "tests/operations/test_standby.py"
#: A read on a standby shows the writes before it, and a failure of the standby is not its failure.
REPLICAS = (
    Mutant(
        "replayed-position-not-compared",
        STANDBY,
        'if row["position"] >= target["position"]:',
        'if row["position"]:',
        f"{STANDBY_TESTS}::test_a_read_behind_a_paused_replay_runs_on_the_primary",
    ),
    Mutant(
        "replayed-position-compared-with-an-earlier-one",
        STANDBY,
        "needed = server.started + 1",
        "needed = server.started",
        f"{STANDBY_TESTS}::test_a_read_that_joins_a_running_wait_shows_earlier_writes",
    ),
    Mutant(
        "position-without-asynchronous-commits",
        "sql/queries/standby.sql",
        "then pg_current_wal_insert_lsn()",
        "then pg_current_wal_flush_lsn()",
        f"{STANDBY_TESTS}::test_a_read_without_synchronous_commits_shows_earlier_writes",
    ),
    never(
        "promoted-standby-read",
        STANDBY,
        'not row["is_standby"]',
        f"{STANDBY_TESTS}::test_the_primary_itself_is_no_standby",
    ),
    never(
        "standby-of-another-history-read",
        STANDBY,
        'seen > target["position"]',
        f"{STANDBY_TESTS}::test_a_standby_of_a_promoted_server_is_not_read",
    ),
    removal(
        "standby-of-another-database-read",
        STANDBY,
        ' if row["identity"] == target["identity"] else FOREIGN',
        f"{STANDBY_TESTS}::test_another_database_of_the_standby_is_not_read",
    ),
    removal(
        "timeline-not-noted-read",
        STANDBY,
        ' or not target["is_current"]',
        f"{STANDBY_TESTS}::test_a_standby_is_read_after_a_failover_once_the_timeline_is_noted",
    ),
    removal(
        "statements-of-a-frozen-standby-kept",
        STANDBY,
        "        self._pool.terminate()\n",
        f"{STANDBY_TESTS}::test_a_running_read_survives_a_standby_that_freezes",
    ),
    removal(
        "lagging-standby-tried-by-each-read",
        STANDBY,
        "        self._standby = None\n",
        f"{STANDBY_TESTS}::test_a_read_behind_a_paused_replay_runs_on_the_primary",
    ),
)

CELLS = (
    Mutant(
        "share-of-a-cell-ignored",
        "service/portal/rate_limits.py",
        "calls = max(1, math.floor(quota.calls * scale)) * share",
        "calls = max(1, math.floor(quota.calls * scale)) * Decimal(1)",
        "tests/portal/test_portal_quota.py::test_shares_of_cells_do_not_exceed_the_quota",
    ),
)

HOLD, MANY_HOLDS = "tests/submission/test_hold.py", "tests/submission/test_many_holds.py"
COMPARISON = "tests/submission/test_comparison.py"
LATER, QUOTA = "tests/submission/test_later_states.py", "tests/portal/test_portal_quota.py"

WORLD = "tests/submission/test_world.py"

#: A hold is put on every company, and ends after one comparison of what may be missing.
HELD = (
    removal(
        "hold-not-checked-in-the-claim",
        "sql/functions/submissions/claim_submissions.sql",
        "         and not exists (select\n"
        "                           from sending_holds x\n"
        "                          where x.company_id = h.company_id and x.released_at is null)\n",
        f"{WORLD}::test_the_world_claims_what_the_statement_claims",
    ),
    Mutant(
        "hold-not-checked-in-the-claim-of-requests",
        "sql/functions/submissions/claim_submissions.sql",
        "where x.company_id = s.company_id and x.released_at is null))",
        "where x.company_id = s.company_id and x.released_at is not null))",
        f"{WORLD}::test_the_world_claims_what_the_statement_claims",
    ),
    removal(
        "claimed-before-a-failover-is-noticed",
        "sql/functions/submissions/claim_submissions.sql",
        "         and database_identity() = (select i.identity from database_state i)\n",
        f"{WORLD}::test_the_world_claims_what_the_statement_claims",
    ),
    removal(
        "looked-up-before-a-failover-is-noticed",
        COMPARISONS,
        "           and database_identity() = (select identity from database_state)\n",
        f"{HOLD}::test_nothing_is_claimed_in_another_database_than_the_noted_one[Uncertain]",
    ),
    Mutant(
        "hold-ends-before-the-settling-time",
        COMPARISONS,
        "w.compared_at >= h.since + :settle::interval)",
        "w.compared_at >= h.since + 0 * :settle::interval)",
        f"{WORLD}::test_the_world_ends_holds_as_the_statement_does",
    ),
    Mutant(
        "hold-ends-with-orphans",
        COMPARISONS,
        "                      and f.kind in ('duplicate', 'orphan'))\n",
        "                      and f.kind in ('duplicate'))\n",
        f"{WORLD}::test_the_world_ends_holds_as_the_statement_does",
    ),
    removal(
        "hold-of-another-database-ends",
        COMPARISONS,
        " database_identity() = (select identity from database_state)\n   and",
        f"{MANY_HOLDS}::test_a_hold_of_another_database_than_the_noted_one_does_not_end",
    ),
    never(
        "absence-confirmed-before-the-failover-counts",
        "sql/functions/submissions/hold_sending.sql",
        "s.state = 'Uncertain'",
        f"{WORLD}::test_the_world_holds_sending_as_the_statement_does",
    ),
    removal(
        "failover-during-a-hold-by-hand-compares-less",
        "sql/functions/submissions/hold_sending.sql",
        " h.known_until is not null and",
        f"{MANY_HOLDS}::test_a_failover_during_a_hold_by_hand_compares_no_less",
    ),
    Mutant(
        "comparison-does-not-reach-back",
        "service/submission/machine/comparison_rules.py",
        "max(longest, known_until - KNOWN_MARGIN)",
        "now - KNOWN_MARGIN",
        "tests/submission/test_many_holds.py::test_a_hold_reaches_back_to_the_latest_recorded_comparison",
    ),
    Mutant(
        "possibly-sent-document-not-adopted",
        "service/submission/machine/comparison_rules.py",
        '    if row and row.state == "Queued" and may_be_sent:\n',
        '    if row and row.state == "Queued" and row.possibly_received:\n',
        "tests/submission/test_machine.py::test_a_document_whose_sending_a_failover_forgot_is_adopted",
    ),
    removal(
        "orphan-not-reported",
        "service/submission/machine/comparison_rules.py",
        "        verdict.findings.append(_finding(ORPHAN, listed, row))\n",
        FAILOVERS,
    ),
    Mutant(
        "finding-without-a-receipt-time-stays-open",
        COMPARISONS,
        "coalesce(f.received_at, f.found_at) between",
        "f.received_at between",
        f"{COMPARISON}::test_an_orphan_without_a_receipt_time_is_resolved_by_a_comparison",
    ),
    Mutant(
        "closed-document-reported-as-the-duplicate",
        "service/submission/machine/comparison_rules.py",
        "(other.status if other else row.status) not in LIVE",
        "other is None",
        f"{COMPARISON}::test_a_live_document_is_an_orphan_if_the_recorded_one_is_cancelled",
    ),
    Mutant(
        "token-of-a-lost-claim-given-again",
        "sql/functions/submissions/next_fence.sql",
        "greatest(fence + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)",
        "fence + 1",
        "tests/submission/test_claims.py"
        "::test_a_claim_lost_by_a_failover_has_another_token_than_later_ones",
    ),
    always(
        "absence-confirmed-by-a-wrong-clock",
        "service/submission/following/comparison.py",
        "not difference",
        "tests/portal/test_portal_clock.py::test_no_absence_is_confirmed_while_the_clocks_differ",
    ),
    never(
        "hold-ended-by-a-wrong-clock",
        "service/submission/following/comparison.py",
        "span.is_held and difference",
        "tests/portal/test_portal_clock.py::test_a_hold_does_not_end_while_the_clocks_differ",
    ),
    Mutant(
        "companies-without-keys-not-held",
        "sql/functions/submissions/hold_sending.sql",
        "from companies c\n",
        "from companies c join api_keys k on k.company_id = c.id\n",
        f"{MANY_HOLDS}::test_a_company_without_api_keys_is_held",
    ),
    Mutant(
        "repeated-hold-keeps-its-comparison",
        "sql/functions/submissions/hold_sending.sql",
        "set since = clock_timestamp(),",
        "set since = h.since,",
        f"{MANY_HOLDS}::test_a_hold_that_is_repeated_needs_another_comparison",
    ),
    Mutant(
        "comparison-recorded-in-another-database",
        COMPARISONS,
        " where database_identity() = (select identity from database_state)\n",
        " where true\n",
        f"{MANY_HOLDS}::test_a_comparison_of_another_database_than_the_noted_one_is_not_recorded",
    ),
    always(
        "hold-by-hand-compares-less",
        "sql/functions/submissions/hold_sending.sql",
        "h.known_until is not null and excluded.known_until is not null",
        f"{MANY_HOLDS}::test_a_hold_reaches_back_to_the_latest_recorded_comparison",
    ),
    Mutant(
        "unlisted-document-is-polled-no-more",
        COMPARISONS,
        "d.id <> all (:listed::bigint[])",
        "d.id <> all (:listed::bigint[]) and false",
        f"{LATER}::test_a_comparison_ends_the_polls_of_the_valid_documents_that_it_lists",
    ),
    never(
        "late-validation-is-polled-no-more",
        COMPARISONS,
        "d.validated_at > d.submitted_at + interval '1 hour'",
        f"{LATER}::test_a_comparison_ends_the_polls_of_the_valid_documents_that_it_lists",
    ),
    Mutant(
        "listed-cancellation-ignored",
        "service/submission/following/later_states.py",
        """there.status in moves and there.status != "Invalid":""",
        """there.status in moves - {"Cancelled"} and there.status != "Invalid":""",
        f"{LATER}::test_a_comparison_takes_over_rejections_and_cancellations",
    ),
    removal(
        "comparison-without-the-former-window",
        "service/submission/machine/comparison_rules.py",
        " - CHANGING",
        f"{LATER}::test_a_comparison_covers_what_may_have_changed_since_the_latest_one",
    ),
    Mutant(
        "comparison-due-only-after-recent-sends",
        "sql/functions/comparisons/claim_comparisons.sql",
        "w.compared_at - changing)",
        "clock_timestamp() - interval '1 day')",
        "tests/submission/test_later_states.py::test_a_company_is_due_while_documents_may_have_changed_since_its_comparison[None-26-True]",
    ),
    never(
        "refused-client-tried-for-each-taxpayer",
        "service/portal/logins.py",
        "error.is_client",
        "tests/portal/test_refused_logins.py::test_a_refused_client_is_tried_once_for_all_taxpayers",
    ),
    never(
        "edited-migration-accepted",
        "service/db/migrations.py",
        "digests.get(migration.name, migration.sha256) != migration.sha256",
        "tests/operations/test_compatibility.py::test_an_applied_migration_that_changed_is_refused_before_anything_is_applied",
    ),
    removal(
        "flood-of-submits-not-spread",
        "service/portal/rate_limits.py",
        ", parts=3",
        f"{QUOTA}::test_submits_of_a_flood_leave_two_thirds_to_others_from_the_first_minute",
    ),
    removal(
        "endpoint-without-a-limit",
        "sql/functions/webhooks/claim_webhook_deliveries.sql",
        " - under_way",
        "tests/api/test_webhooks.py::test_an_endpoint_gets_eight_events_at_a_time_from_all_processes",
    ),
    Mutant(
        "order-of-an-endpoint-ignored",
        "sql/functions/webhooks/claim_webhook_deliveries.sql",
        "case when e.ordered then 1 else at_once end",
        "at_once",
        "tests/api/test_webhooks.py::test_events_are_delivered_in_order_and_one_at_a_time",
    ),
    always(
        "clock-step-ignored",
        "sql/functions/failovers/note_clock.sql",
        "shift is null or shift < interval '10 seconds'",
        "tests/operations/test_clock_steps.py::test_times_are_moved_by_the_step_and_not_into_the_past",
    ),
    never(
        "searches-without-priority",
        "sql/functions/portal/take_portal_token.sql",
        "yields_to > now_at",
        f"{QUOTA}::test_searches_go_to_held_companies_then_to_unknown_outcomes_then_to_comparisons",
    ),
    always(
        "companies-compared-at-the-same-time",
        "sql/functions/comparisons/claim_comparisons.sql",
        "not exists (select from busy)",
        f"{MANY_HOLDS}::test_one_company_of_the_operators_client_is_compared_at_a_time",
    ),
    always(
        "unverified-company-compared",
        "sql/functions/comparisons/claim_comparisons.sql",
        "c.tin <> '' and c.tin_verified_at is not null",
        f"{MANY_HOLDS}::test_a_hold_of_an_unverified_tin_counts_nowhere_and_ends_once_it_is_verified",
    ),
    removal(
        "unverified-company-counted-as-held",
        "sql/functions/operations/conditions.sql",
        " where h.can_send",
        f"{MANY_HOLDS}::test_a_hold_of_an_unverified_tin_counts_nowhere_and_ends_once_it_is_verified",
    ),
    Mutant(
        "refused-page-ends-the-comparison",
        "service/submission/following/comparison.py",
        "    await asyncio.sleep(wait.total_seconds())\n    return True",
        "    return False",
        f"{MANY_HOLDS}::test_refused_page_is_requested_again_and_the_pages_before_are_kept",
    ),
    skipped(
        "shutdown-waits-for-a-comparison",
        "service/submission/worker.py",
        "task.cancel()",
        f"{MANY_HOLDS}::test_a_process_that_ends_does_not_wait_for_a_complete_comparison",
    ),
    removal(
        "failed-comparison-keeps-its-claim",
        COMPARISONS,
        " lease_until = clock_timestamp() + :rest::interval,\n      ",
        f"{MANY_HOLDS}::test_a_company_that_fails_for_its_own_reason_does_not_block_others",
    ),
)

RIGHT_OF_PATH = (
    "tests/dashboard/test_protection.py::test_every_page_and_form_needs_the_right_of_its_path"
)

#: Every change has an entry with its actor.
AUDITED = (
    Mutant(
        "create-without-its-actor",
        DOCUMENTS,
        "set_config('app.actor', :actor, true)",
        "set_config('app.actor', left(:actor, 0), true)",
        "tests/security/test_audit_of_documents.py::test_concurrent_creates_have_their_own_actor",
    ),
    Mutant(
        "update-of-an-invoice-not-audited",
        DOCUMENTS,
        "select :company_id::bigint, 'change', document_name(kind, id) from changed",
        "select :company_id::bigint, 'change', document_name(kind, id) from changed where false",
        "tests/security/test_audit_of_documents.py::test_every_change_of_a_document_has_an_entry",
    ),
    Mutant(
        "rejection-by-an-approval-not-audited",
        "sql/queries/einvoice_requests.sql",
        "    from rejected\n   order by id\n)",
        "    from rejected\n   where false\n)",
        "tests/security/test_audit_of_documents.py::test_decisions_about_requests_have_entries",
    ),
)

#: Visitors with a link store few requests.
VISITORS = (
    Mutant(
        "request-of-a-link-names-its-invoice-by-code",
        "sql/queries/einvoice_requests.sql",
        "         (select document_id\n",
        "         (select null::bigint\n",
        f"{RECEIPTS}::test_an_approval_finalizes_the_invoice_of_the_link_only",
    ),
    Mutant(
        "next-buyer-shown-to-the-former-one",
        "sql/queries/einvoice_requests.sql",
        "r.approved_party is distinct from",
        "false and r.approved_party is distinct from",
        f"{RECEIPTS}::test_the_buyer_of_a_request_sees_nothing_of_the_next_buyer",
    ),
    never(
        "link-outlives-its-buyer",
        "sql/queries/documents.sql",
        "former.party is not null",
        "tests/api/test_links.py::test_a_change_of_the_buyer_revokes_the_links_to_the_printed_page",
    ),
    removal(
        "approval-kept-by-a-deleted-invoice",
        "sql/queries/einvoice_requests.sql",
        "\n                          and i.deleted_at is null",
        "tests/api/test_einvoice_requests.py"
        "::test_approval_after_the_deletion_of_its_invoice_finalises_the_next",
    ),
    removal(
        "link-not-locked-for-a-request",
        "sql/queries/links.sql",
        "   for no key update",
        "tests/dashboard/test_receipts.py"
        "::test_concurrent_requests_at_two_services_keep_to_the_limits[one buyer]",
    ),
    never(
        "pending-request-of-a-buyer-twice",
        "service/api/einvoice_requests.py",
        'found["is_of_buyer"]',
        "tests/dashboard/test_receipts.py::test_a_second_pending_request_of_a_buyer_is_a_409[tin]",
    ),
    Mutant(
        "full-link-tells-whose-request-waits",
        "service/api/einvoice_requests.py",
        '    if found["pending"] >= MOST_PENDING:',
        '    if found["pending"] >= MOST_PENDING and not found["is_of_buyer"]:',
        "tests/dashboard/test_receipts.py::test_a_full_link_does_not_tell_whose_request_waits",
    ),
    never(
        "link-with-any-number-of-requests",
        "service/api/einvoice_requests.py",
        'found["pending"] >= MOST_PENDING',
        "tests/dashboard/test_receipts.py::test_a_link_has_few_pending_requests",
    ),
)

#: What people enter is text to browsers and spreadsheets.
ENTERED = (
    Mutant(
        "formula-after-another-separator",
        "service/dashboard/spreadsheet.py",
        r"(?<=[,;|\t\r\n\v\f\x85\u2028\u2029])",
        "(?!)",
        "tests/dashboard/test_documents.py::test_a_text_with_a_formula_is_a_cell_without_one",
    ),
    removal(
        "cells-without-quotes",
        "service/dashboard/spreadsheet.py",
        ", quoting=csv.QUOTE_ALL",
        "tests/dashboard/test_documents.py::test_every_cell_of_a_file_is_quoted_and_holds_no_formula",
    ),
    Mutant(
        "control-characters-in-a-redirect",
        "service/dashboard/pages.py",
        r"/(?!/)[^\x00-\x1f\x7f-\x9f\\]{,2000}",
        r"/(?!/)(?s:.){,2000}",
        "tests/dashboard/test_broken_forms.py::test_another_site_or_no_path_is_the_start_page",
    ),
)

#: A role holds once the person has accepted it by a link of its company.
ACCEPTED = (
    Mutant(
        "pending-role-gives-rights",
        "sql/queries/people.sql",
        "           on m.company_id = s.company and m.accepted_at is not null\n",
        "           on m.company_id = s.company\n",
        f"{ROLES}::test_a_session_loses_its_rights_when_its_role_becomes_pending",
    ),
    removal(
        "link-sets-the-password-of-other-companies",
        "service/dashboard/links.py",
        " or (others and self.is_refusable)",
        f"{ROLES}::test_a_link_that_an_attacker_kept_sets_no_password_for_another_company",
    ),
    Mutant(
        "link-ignores-accepted-roles",
        "service/dashboard/links.py",
        "if any(role.is_accepted for role in others) or (others and self.is_refusable):",
        "if others and self.is_refusable:",
        f"{ROLES}::test_a_link_made_before_another_company_was_joined_sets_no_password",
    ),
    Mutant(
        "kept-link-outlives-an-acceptance",
        "sql/queries/people.sql",
        "and (token_sha256 = :token_sha256 or created_at < :created_at)",
        "and (token_sha256 = :token_sha256 or created_at < :created_at and false)",
        f"{ROLES}::test_a_kept_link_is_void_after_another_company_was_joined",
    ),
    removal(
        "link-used-twice-by-a-race",
        "sql/queries/people.sql",
        "\n   for no key update",
        f"{ROLES}::test_a_link_opened_twice_at_once_is_used_once",
    ),
    removal(
        "key-of-a-person-who-was-removed-meanwhile",
        "service/dashboard/settings_access.py",
        "        await people.check_administers(conn, company, request[SESSION].user_id)\n",
        f"{ROLES}::test_a_person_who_is_removed_meanwhile_makes_no_key",
    ),
    never(
        "settings-of-a-person-who-was-removed-meanwhile",
        "service/http/access.py",
        "app_keys.CHECK_ROLE in request",
        "tests/dashboard/test_settings_pages.py"
        "::test_a_person_who_is_removed_during_the_login_stores_no_credentials",
    ),
    never(
        "link-for-oneself",
        "service/dashboard/people.py",
        "user_id == by",
        "tests/dashboard/test_account.py::test_a_link_for_oneself_is_neither_offered_nor_made",
    ),
    Mutant(
        "log-of-another-company-shown",
        "sql/queries/people.sql",
        "   and l.id > (select log_hidden from users where id = :user_id)\n",
        "",
        f"{ROLES}::test_a_companys_link_hides_the_log_at_another_company",
    ),
    removal(
        "links-outlive-a-new-password",
        "service/dashboard/links.py",
        "        await sql.links_void(conn, user_id=session.user_id)\n",
        f"{ROLES}::test_a_new_password_makes_links_by_the_person_void",
    ),
    never(
        "link-used-as-it-was-before",
        "service/dashboard/links.py",
        "(present.role, present.step) != (link.role, link.step)",
        f"{ROLES}::test_a_link_is_not_used_if_another_company_invites_meanwhile",
    ),
    never(
        "invitation-outlives-the-link-of-the-own-company",
        "service/dashboard/links.py",
        "link.step == CHOOSE",
        f"{ROLES}::test_an_invitation_of_another_company_is_void_after_the_own_link_is_used",
    ),
    Mutant(
        "operator-link-keeps-roles",
        "service/dashboard/links.py",
        "    await sql.reset_roles(conn, person=user_id)",
        "    return",
        f"{ROLES}::test_the_operators_link_ends_what_an_attacker_began",
    ),
    skipped(
        "operator-link-keeps-the-password",
        "service/dashboard/links.py",
        "await sql.user_set_password(conn, user_id=user_id, password_hash=None)",
        f"{ROLES}::test_the_operators_link_ends_what_an_attacker_began",
    ),
    removal(
        "removed-person-keeps-the-link",
        "service/dashboard/links.py",
        " if link.company_id is None or link.role else None",
        f"{ROLES}::test_a_newer_link_of_another_company_is_void_once_the_older_one_was_used",
    ),
    Mutant(
        "acceptance-keeps-other-sessions",
        "service/dashboard/links.py",
        "company_id=link.company_id)\n        await sql.sessions_end(conn, ",
        "company_id=link.company_id)\n        dict(",
        f"{ROLES}::test_accepting_a_role_ends_the_other_sessions",
    ),
    removal(
        "pending-owner-counts",
        "service/dashboard/people.py",
        " and held.is_accepted",
        f"{ROLES}::test_a_pending_owner_is_not_the_owner_that_a_company_needs",
    ),
    Mutant(
        "name-with-other-punctuation-is-a-password",
        "service/dashboard/passwords.py",
        'r"[\\W_]*".join(word)',
        "word",
        "tests/dashboard/test_sessions.py::test_a_name_in_other_case_and_punctuation_is_no_password",
    ),
    Mutant(
        "operators-link-takes-the-name-of-a-company",
        "service/dashboard/sign_in.py",
        "(link.name, link.email, *companies)",
        "(link.name, link.email)",
        f"{ROLES}::test_the_operators_link_refuses_the_names_of_all_companies",
    ),
    Mutant(
        "changed-password-is-the-name-of-another-company",
        "service/dashboard/sign_in.py",
        "*(role.company_name for role in roles)]",
        'session.company_name or ""]',
        f"{ROLES}::test_a_changed_password_is_the_name_of_no_company",
    ),
    Mutant(
        "link-made-without-a-recent-password",
        "service/dashboard/settings_access.py",
        '/link", _renew_link)',
        '/link", _renew_link, needs_password=False)',
        f"{ROLES}::test_people_are_changed_only_after_the_password_was_entered",
    ),
    Mutant(
        "webhook-changed-without-a-recent-password",
        "service/dashboard/settings_connections.py",
        'operation("POST", ROTATE))',
        'operation("POST", ROTATE), needs_password=False)',
        "tests/dashboard/test_protection.py::test_every_form_of_the_settings_needs_a_recent_password",
    ),
    Mutant(
        "settings-open-to-readers",
        "service/dashboard/settings.py",
        "handler, ADMINISTER, return_to",
        'handler, "read", return_to',
        RIGHT_OF_PATH,
    ),
    removal(
        "document-submitted-by-readers",
        "service/dashboard/documents.py",
        ", right=WRITE",
        RIGHT_OF_PATH,
    ),
    always(
        "sign-in-link-counts-as-a-password",
        "service/dashboard/sign_in.py",
        "link.step != ENTER",
        f"{ROLES}::test_a_link_that_asks_for_nothing_is_no_entered_password",
    ),
)

ACCOUNT = "tests/dashboard/test_account.py"

#: Limits of passwords, the log of a person, links made by others, and sessions.
PEOPLE = (
    Mutant(
        "person-locked-out-from-anywhere",
        "service/dashboard/sign_in.py",
        "state.tries.take((account, sender.network))",
        "state.tries.take(account)",
        f"{ACCOUNT}::test_wrong_passwords_from_elsewhere_do_not_lock_a_person_out",
    ),
    Mutant(
        "tries-counted-by-address-and-not-by-network",
        "service/dashboard/sign_in.py",
        "state.tries.take((account, sender.network))",
        "state.tries.take((account, sender.group))",
        f"{ACCOUNT}::test_addresses_of_one_network_share_the_tries_of_a_person",
    ),
    Mutant(
        "no-limit-of-a-person",
        "service/dashboard/sign_in.py",
        "wait = state.accounts.take(account)",
        "wait = 0",
        f"{ACCOUNT}::test_tries_from_many_networks_are_limited_in_an_hour",
    ),
    removal(
        "known-network-locked-out",
        "service/dashboard/sign_in.py",
        ' or await _is_near(request, user["id"])',
        f"{ACCOUNT}::test_a_known_network_is_open_after_tries_from_many_networks",
    ),
    Mutant(
        "network-of-another-person-is-known",
        "sql/queries/people.sql",
        "          where user_id = :user_id\n            and action = 'sign_in'",
        "          where (user_id = :user_id or true)\n            and action = 'sign_in'",
        f"{ACCOUNT}::test_a_network_of_another_person_is_not_known",
    ),
    Mutant(
        "wrong-password-discloses-a-person",
        "service/dashboard/sign_in.py",
        "    _refuse(wait)\n    async with",
        "    _refuse(0 if is_allowed else wait)\n    async with",
        f"{ACCOUNT}::test_unknown_people_are_refused_like_known_ones",
    ),
    Mutant(
        "wrong-password-without-an-entry",
        "service/dashboard/sign_in.py",
        'sql.user_fail(conn, user_id=user["id"])',
        "sql.user_fail(conn, user_id=None)",
        f"{ACCOUNT}::test_sign_ins_and_wrong_passwords_are_shown_with_their_address",
    ),
    Mutant(
        "log-of-other-people-shown",
        "sql/queries/people.sql",
        " where l.user_id = :user_id and l.id <",
        " where (l.user_id = :user_id or true) and l.id <",
        f"{ACCOUNT}::test_the_log_is_read_in_pages_by_its_person_only",
    ),
    Mutant(
        "link-of-a-colleague-not-shown",
        "sql/queries/people.sql",
        "                     and l.id > u.links_seen",
        "                     and b.id = u.id",
        f"{ACCOUNT}::test_a_link_that_a_colleague_made_is_shown_until_it_was_seen",
    ),
    Mutant(
        "notice-hidden-for-good",
        "sql/queries/people.sql",
        "   and l.user_id = u.id\n   and l.id = :until",
        "   and (l.user_id = u.id or true)\n   and l.id = :until",
        "tests/dashboard/test_account.py::test_the_notice_stays_unless_its_entry_is_named[foreign]",
    ),
    Mutant(
        "session-of-another-person-ended",
        "sql/queries/people.sql",
        " where user_id = :user_id and id = :id\nreturning id;",
        " where (user_id = :user_id or true) and id = :id\nreturning id;",
        f"{ACCOUNT}::test_sessions_of_other_people_are_unknown",
    ),
    Mutant(
        "all-sessions-of-all-people-ended",
        "sql/queries/people.sql",
        " where user_id = :user_id and token_sha256 is distinct from :kept and",
        " where :user_id > 0 and token_sha256 is distinct from :kept and",
        f"{ACCOUNT}::test_sessions_of_other_people_are_unknown",
    ),
)

FORMS = "tests/dashboard/test_forms.py"
UNKNOWN = "tests/api/test_unknown_members.py"

#: What strangers send is limited before any work.
LIMITED = (
    Mutant(
        "form-of-any-charset",
        "service/http/forms.py",
        "if not _TYPE.fullmatch(",
        "if not _TYPE.match(",
        f"{FORMS}::test_a_form_of_another_type_or_charset_is_a_415",
    ),
    never(
        "form-with-many-fields",
        "service/http/forms.py",
        'raw.count(b"&") >= limits.fields',
        "tests/dashboard/test_forms.py::test_a_public_form_over_a_limit_is_a_413[fields]",
    ),
    removal(
        "public-form-as-large-as-one-of-a-session",
        "service/dashboard/pages.py",
        " PUBLIC_FORM if session is None else",
        "tests/dashboard/test_forms.py::test_a_public_form_over_a_limit_is_a_413[characters]",
    ),
    never(
        "form-field-of-any-length",
        "service/http/forms.py",
        "len(text) > most",
        "tests/dashboard/test_forms.py::test_a_form_of_a_session_over_a_limit_is_a_413[characters]",
    ),
    skipped(
        "memory-of-bodies-kept",
        "service/http/middleware.py",
        "upload.release()",
        "tests/operations/test_upload_budget.py::test_memory_is_given_back_after_a_broken_request[send_large_chunks]",
    ),
    removal(
        "memory-of-bodies-taken-by-one-company",
        "service/http/limits.py",
        " // POOL_SHARE",
        "tests/operations/test_pressure.py::test_request_bodies_of_a_company_are_a_503_beyond_a_third_of_the_memory",
    ),
    Mutant(
        "memory-of-bodies-taken-by-a-few-clients",
        "service/http/limits.py",
        "own + size <= (self.size - self.taken + own) // POOL_SHARE",
        "self.taken + size <= self.size and own + size <= self.size // POOL_SHARE",
        "tests/operations/test_upload_budget.py::test_many_clients_leave_memory_for_the_next_one",
    ),
    Mutant(
        "small-bodies-wait-for-large-ones",
        "service/http/limits.py",
        "self._uncounted = UNCOUNTED_BYTES",
        "self._uncounted = 0",
        "tests/operations/test_upload_budget.py::test_many_clients_leave_memory_for_the_next_one",
    ),
    never(
        "memory-of-bodies-taken-by-strangers",
        "service/http/limits.py",
        "owner == STRANGERS",
        "tests/operations/test_pressure.py::test_slow_bodies_of_strangers_take_no_memory_from_companies",
    ),
    never(
        "half-requests-never-closed",
        "service/http/server.py",
        "not running.content.is_eof()",
        "tests/api/test_edge.py::test_connection_limit_closes_the_connection_that_waits_longest",
    ),
    removal(
        "connections-with-a-running-request-closed",
        "service/http/server.py",
        " and connection.waits_for_client",
        "tests/api/test_edge.py::test_connection_limit_closes_no_connection_that_waits_for_a_response",
    ),
    Mutant(
        "password-easy-to-guess",
        "service/dashboard/passwords.py",
        ">= LEAST_SCORE",
        ">= 0",
        "tests/dashboard/test_sessions.py::test_weak_passwords_are_refused",
    ),
    Mutant(
        "signs-of-a-password-unlimited",
        "service/dashboard/passwords.py",
        "signs[MOST_SIGNS:]",
        "signs[99:]",
        "tests/dashboard/test_sessions.py::test_judging_a_password_takes_bounded_time",
    ),
    removal(
        "long-password-normalised",
        "service/dashboard/passwords.py",
        "[:MOST_CHARACTERS]",
        "tests/dashboard/test_sessions.py::test_passwords_of_any_length_take_little_processor_time",
    ),
    removal(
        "long-password-cut",
        "service/dashboard/passwords.py",
        " and not _is_long(password)",
        "tests/dashboard/test_sessions.py::test_a_long_password_is_wrong_although_it_begins_with_the_right_one",
    ),
    removal(
        "entries-of-a-long-array-judged",
        "service/schema.py",
        " None if is_long else",
        "tests/api/test_bodies.py::test_entries_of_an_array_that_is_too_long_are_not_judged",
    ),
    never(
        "codes-of-a-long-array-judged",
        "service/http/requests.py",
        'any(each["rule"] == "maxItems" for each in violations)',
        "tests/api/test_bodies.py::test_entries_of_an_array_that_is_too_long_are_not_judged",
    ),
    removal(
        "members-of-a-long-array-compared",
        "service/members.py",
        " and len(value) <= shape.most",
        "tests/api/test_bodies.py::test_entries_of_an_array_that_is_too_long_are_not_judged",
    ),
    never(
        "any-number-of-unknown-members",
        "service/schema.py",
        "len(judged) > members.MOST_UNKNOWN",
        f"{UNKNOWN}::test_an_object_has_at_most_100_unknown_members",
    ),
    removal(
        "all-unknown-members-compared",
        "service/schema.py",
        "[: members.MOST_COMPARED]",
        f"{UNKNOWN}::test_the_first_50_unknown_members_of_an_object_are_compared",
    ),
    never(
        "any-number-of-different-names",
        "service/schema.py",
        "len(names) > members.MOST_NAMES",
        f"{UNKNOWN}::test_a_body_has_at_most_1000_different_unknown_members",
    ),
    removal(
        "long-names-in-paths",
        "service/json_codec.py",
        "[:LONGEST_STEP]",
        f"{UNKNOWN}::test_paths_of_violations_in_a_body_with_long_names_stay_short",
    ),
    removal(
        "similar-codes-searched-without-limit",
        "service/documents/codes.py",
        " len(searches) >= MAX_SEARCHES or",
        "tests/documents/test_codes.py::test_similar_codes_are_searched_for_five_texts_of_a_request",
    ),
    Mutant(
        "all-connections-to-the-portal-for-one-taxpayer",
        "service/portal/connections.py",
        "max(1, size // 3)",
        "size",
        "tests/portal/test_portal_connections.py::test_a_taxpayer_gets_at_most_a_third_of_the_connections",
    ),
    never(
        "page-of-the-portal-with-any-number-of-rows",
        "service/portal/documents.py",
        "len(values) > MOST_PAGE_ROWS",
        "tests/portal/test_portal_client.py::test_a_page_with_many_more_rows_than_requested_is_unclear",
    ),
    removal(
        "deeply-nested-copy-is-an-error",
        "service/submission/following/document_comparison.py",
        ", RecursionError",
        "tests/submission/test_document_identity.py::test_a_copy_that_is_nested_too_deeply_cannot_be_read",
    ),
    removal(
        "all-unknown-members-quoted",
        "service/schema.py",
        " if allowed else None",
        f"{UNKNOWN}::test_unknown_members_are_not_quoted_by_the_validator",
    ),
    Mutant(
        "login-at-the-sandbox-in-any-charset",
        "service/sandbox/login.py",
        'not in ("utf-8", "utf8")',
        '== "nonsense"',
        "tests/sandbox/test_sandbox.py::test_a_login_in_another_charset_is_refused",
    ),
    Mutant(
        "stored-line-copied-to-many",
        "service/dashboard/document_form.py",
        "left.pop(read_number(origin, 5), {})",
        "copy.deepcopy(left.get(read_number(origin, 5), {}))",
        "tests/dashboard/test_invoice_form.py::test_a_stored_line_is_the_origin_of_one_line_of_the_form",
    ),
)

NOT_SENT = "tests/submission/test_not_sent.py"

#: Submissions that reached nothing are reported as that, and those in a hold are not waited for.
UNSENT = (
    Mutant(
        "refusal-rolled-back",
        "service/submission/sending/submit.py",
        "        return refusal\n",
        "        raise refusal\n",
        f"{NOT_SENT}::test_a_failed_check_is_the_last_submission",
    ),
    never(
        "failed-check-not-in-the-record",
        "sql/functions/submissions/last_submission.sql",
        "state.failed_outcome is not null",
        f"{NOT_SENT}::test_a_failed_check_after_an_approval_is_the_last_submission",
    ),
    removal(
        "failed-check-kept-by-a-later-submission",
        SUBMISSIONS,
        " failed_outcome = null, outcome_at = null,",
        f"{NOT_SENT}::test_a_running_submission_is_not_replaced_by_a_failed_check",
    ),
    Mutant(
        "unsent-document-rejected",
        "service/submission/machine/state_machine.py",
        '_set_all(submission, "NotSent", [{**event.error',
        '_set_all(submission, "Rejected", [{**event.error',
        f"{NOT_SENT}::test_a_refused_login_makes_the_document_not_sent",
    ),
    Mutant(
        "absent-document-rejected",
        "service/submission/machine/state_machine.py",
        '_set_all(submission, "NotSent", [NEVER_THERE])',
        '_set_all(submission, "Rejected", [NEVER_THERE])',
        f"{NOT_SENT}::test_an_absent_document_is_not_sent",
    ),
    Mutant(
        "unsent-document-counts-as-the-latest",
        SUBMISSIONS,
        "status not in ('Rejected', 'NotSent')",
        "status <> 'Rejected'",
        f"{NOT_SENT}::test_an_unsent_document_can_neither_be_cancelled_nor_noted",
    ),
    removal(
        "all-errors-in-the-record",
        "service/submission/machine/failures.py",
        "[:MOST_ERRORS]",
        f"{NOT_SENT}::test_a_record_has_a_limited_number_of_errors",
    ),
    removal(
        "held-submission-not-named",
        "service/submission/sending/submit.py",
        "    if is_held:\n        return HELD\n",
        f"{HOLD}::test_submit_immediately_is_answered_at_once_during_a_hold",
    ),
    Mutant(
        "hold-since-the-commit-not-named",
        "service/submission/sending/submit.py",
        "    if outcome.is_held:  # since",
        "    if False:  # since",
        f"{HOLD}::test_a_hold_that_begins_before_the_send_is_reported",
    ),
    removal(
        "held-submission-waited-for",
        "service/submission/sending/submit.py",
        " or row.is_held",
        f"{HOLD}::test_a_submit_joins_without_waiting_during_a_hold",
    ),
)

FAILOVER_TESTS = "tests/submission/test_failovers.py"
RECORD_IDENTITY = "sql/functions/failovers/record_database_identity.sql"
INCOMPLETE = f"{FAILOVER_TESTS}::test_incomplete_evidence_holds"
PROVEN = f"{FAILOVER_TESTS}::test_other_standbys_are_proven_when_the_former_evidence_is_over"
CONFIRMING = f"{FAILOVER_TESTS}::test_standbys_are_synchronous_if_all_have_to_confirm"

#: Sending goes on after a failover only if nothing can be missing.
PROVEN_FAILOVERS = (
    Mutant(
        "evidence-of-another-server",
        RECORD_IDENTITY,
        "seen = here\n",
        "seen is not null\n",
        INCOMPLETE,
    ),
    Mutant(
        "evidence-of-another-history",
        RECORD_IDENTITY,
        "and was.identity = former\n",
        "and former is not null\n",
        INCOMPLETE,
    ),
    Mutant(
        "later-evidence-is-missing",
        RECORD_IDENTITY,
        "was.evidence >= record_database_identity.evidence\n",
        "was.evidence >= 0\n",
        INCOMPLETE,
    ),
    Mutant(
        "expired-evidence-counts",
        RECORD_IDENTITY,
        "and age < interval '60 seconds'\n",
        "and age < interval '1 hour'\n",
        INCOMPLETE,
    ),
    Mutant(
        "evidence-without-age-counts",
        RECORD_IDENTITY,
        "and age < interval '60 seconds'\n",
        "and coalesce(age, '0') < interval '60 seconds'\n",
        INCOMPLETE,
    ),
    Mutant(
        "evidence-expired-by-the-database-clock",
        RECORD_IDENTITY,
        "and was.guarded_until > clock_timestamp() + interval '15 seconds'\n",
        "and was.guarded_until is not null\n",
        INCOMPLETE,
    ),
    removal(
        "any-server-is-lossless",
        RECORD_IDENTITY,
        "and public.server_name() = any (was.standbys)\n",
        INCOMPLETE,
    ),
    removal(
        "earlier-timeline-is-lossless",
        RECORD_IDENTITY,
        "    and split_part(here, '/', 2) collate \"C\" > split_part(former, '/', 2)\n",
        INCOMPLETE,
    ),
    removal(
        "other-cluster-is-lossless",
        RECORD_IDENTITY,
        "\n    and regexp_replace(here, '/[^/]*', '') = regexp_replace(former, '/[^/]*', '')",
        INCOMPLETE,
    ),
    Mutant(
        "confirmation-ends-with-the-timeline",
        RECORD_IDENTITY,
        "then clock_timestamp() + interval '75 seconds' end",
        "then null end",
        f"{FAILOVER_TESTS}::test_a_proven_failover_is_lossless",
    ),
    Mutant(
        "one-of-two-standbys-proves",
        "sql/functions/failovers/synchronous_standbys.sql",
        "l.demanded = cardinality(l.names)",
        "l.demanded <= cardinality(l.names)",
        CONFIRMING,
    ),
    Mutant(
        "any-name-of-a-standby-proves",
        "sql/functions/failovers/synchronous_standbys.sql",
        "where n.name !~ '^[a-z0-9_.-]+$')",
        "where n.name = '')",
        CONFIRMING,
    ),
    Mutant(
        "commit-without-standby-proves",
        "sql/functions/failovers/synchronous_standbys.sql",
        "in ('on', 'remote_apply')",
        "<> ''",
        f"{FAILOVER_TESTS}::test_a_commit_that_waits_for_no_disk_of_a_standby_proves_nothing",
    ),
    always(
        "unconfirmed-intent-allowed",
        "sql/functions/submissions/send_confirmation.sql",
        "i.standbys <@ (synchronous_standbys() || server_name())",
        "tests/submission/test_failovers.py::test_other_standbys_are_proven_when_the_former_evidence_is_over",
    ),
    always(
        "confirmation-not-read-again",
        "service/submission/sending/send.py",
        "self.confirmation == await sql.send_confirmation(conn)",
        "tests/submission/test_claims.py::test_an_intent_whose_confirmation_changes_during_its_commit_is_not_sent",
    ),
    always(
        "other-standbys-proven-at-once",
        "sql/functions/failovers/record_evidence.sql",
        "i.standbys <@ (c.names || c.here)",
        PROVEN,
    ),
    removal(
        "asynchronous-replication-proves",
        "sql/functions/failovers/record_evidence.sql",
        "       and c.names <> '{}'\n",
        PROVEN,
    ),
    removal(
        "unnamed-server-proves",
        "sql/functions/failovers/record_evidence.sql",
        "       and c.here <> all (c.names)\n",
        PROVEN,
    ),
    always(
        "another-database-proves",
        "sql/functions/failovers/record_evidence.sql",
        "i.identity = database_identity()",
        f"{FAILOVER_TESTS}::test_another_database_than_the_noted_one_is_not_proven",
    ),
    removal(
        "committed-work-repeated",
        "service/db/retry.py",
        "not committed and ",
        f"{UNLESS_COMMITTED}[1-True]",
    ),
    skipped(
        "commit-of-inner-work-forgotten",
        "service/db/retry.py",
        "outer += committed",
        f"{UNLESS_COMMITTED}[2-True]",
    ),
    never(
        "commit-without-confirmation-succeeds",
        "service/db/transactions.py",
        "count_warnings(conn) > warnings",
        f"{FAILOVER_TESTS}::test_a_commit_that_no_standby_has_confirmed_is_no_success",
    ),
    Mutant(
        "evidence-forgotten",
        "service/submission/database_identity.py",
        "await _record(conn, self._evidence)",
        "await _record(conn, None)",
        f"{FAILOVER_TESTS}::test_a_synchronous_failover_does_not_hold_and_sends_nothing_twice[immediate]",
    ),
)

EMBEDDED_FILE = "service/embedded_postgres/lifecycle.py"
EMBEDDED_TESTS = "tests/operations/test_embedded.py"
#: Processes share one embedded server, until the last one stops it.
EMBEDDED = (
    Mutant(
        "embedded-server-stopped-while-used",
        EMBEDDED_FILE,
        "                if _lock_alone(users):\n",
        "                if True:\n",
        f"{EMBEDDED_TESTS}::test_server_outlives_the_process_that_started_it",
    ),
    Mutant(
        "embedded-server-not-stopped",
        EMBEDDED_FILE,
        "                if _lock_alone(users):\n",
        "                if False:\n",
        f"{EMBEDDED_TESTS}::test_server_stops_after_the_last_use",
    ),
    Mutant(
        "embedded-server-replaced-while-used",
        EMBEDDED_FILE,
        "if _lock_alone(users) or not",
        "if True or not",
        f"{EMBEDDED_TESTS}::test_second_process_shares_the_running_server",
    ),
    never(
        "embedded-starts-not-serialized",
        EMBEDDED_FILE,
        "not _lock_alone(lock)",
        f"{EMBEDDED_TESTS}::test_concurrent_starts_share_one_server[new]",
    ),
    never(
        "embedded-pid-file-of-a-stranger-kept",
        EMBEDDED_FILE,
        'Path(program).name != "postgres"',
        f"{EMBEDDED_TESTS}::test_stale_pid_file_does_not_prevent_a_start[of a stranger]",
    ),
)

RESPONSES: tuple[Mutant, ...] = (
    Mutant(
        "refusal-of-a-gateway-believed",
        "service/portal/responses.py",
        "not (errors and is_portal_error(body))",
        "not errors",
        "tests/portal/test_portal_client.py::test_a_request_raises_the_error_class_of_its_response",
    ),
    removal(
        "reported-duplicate-released",
        "service/submission/machine/state_machine.py",
        '    if refusal:\n        return Write("NeedsPerson", error=REPORTED)\n',
        "tests/submission/test_faults.py"
        "::test_a_reported_duplicate_that_is_not_listed_needs_manual_review",
    ),
    removal(
        "unread-receipt-counts-as-read",
        "service/submission/following/unknown_outcomes.py",
        "            if not (isinstance(why, Refused) and why.is_missing):\n"
        "                return Listing()\n",
        "tests/submission/test_unknown_outcomes.py"
        "::test_only_a_receipt_that_the_portal_has_answered_counts_as_read",
    ),
    removal(
        "missing-first-send-ruled-out",
        "service/submission/following/matching.py",
        " and not submission.possibly_received",
        "tests/submission/test_document_identity.py"
        "::test_a_missing_first_send_of_a_resent_document_decides_nothing",
    ),
    always(
        "missing-copy-of-a-first-send-ruled-out",
        "service/submission/following/matching.py",
        "not candidate.submission.possibly_received",
        "tests/submission/test_document_identity.py"
        "::test_a_missing_first_send_of_a_resent_document_decides_nothing",
    ),
    never(
        "absent-reasons-believed",
        "service/submission/following/poll.py",
        'shown.status != "Invalid" or shown.errors in ([], errors)',
        "tests/submission/test_submission.py"
        "::test_an_invalid_document_without_readable_reasons[True-shown1]",
    ),
    Mutant(
        "resent-document-without-reasons-not-reviewed",
        "service/submission/machine/state_machine.py",
        "    if event.unreadable:\n",
        "    if False:\n",
        "tests/submission/test_submission.py"
        "::test_an_invalid_document_without_readable_reasons[True-shown1]",
    ),
    removal(
        "refused-cancellation-kept-open",
        "service/submission/machine/cancellation.py",
        "        if code is not None and not state.may_have_arrived:\n"
        "            return state, End(code)\n",
        "tests/submission/test_cancel.py"
        "::test_a_refused_cancellation_ends_although_the_document_is_unreadable",
    ),
)

#: What the portal shows of accepted documents is recognised, stored, and reported if it differs.
FOLLOWED = (
    removal(
        "identifier-in-lower-case-is-another-document",
        "service/portal/members.py",
        " and found.upper()",
        f"{PORTAL_CLIENT}::test_identifiers_in_lower_case_are_read_in_upper_case",
    ),
    removal(
        "default-date-is-a-date",
        "service/portal/documents.py",
        "None if isinstance(value, str) and value.startswith(NO_DATE) else ",
        f"{PORTAL_CLIENT}::test_the_default_date_of_dotnet_is_no_date[Z]",
    ),
    never(
        "details-shown-later-not-added",
        "service/submission/following/later_states.py",
        'doc.status == there.status == "Valid" and any(lacked)',
        f"{LATER}::test_a_poll_adds_details_that_a_valid_document_lacked",
    ),
    Mutant(
        "accepted-submission-without-an-outcome-not-reported",
        "sql/functions/operations/conditions.sql",
        "         and s.last_sent_at < clock_timestamp() - interval '1 day'\n",
        "         and s.last_sent_at < clock_timestamp() - interval '1 year'\n",
        "tests/operations/test_conditions.py"
        "::test_watchdog_reports_a_condition_with_an_action[NoOutcome]",
    ),
    Mutant(
        "company-that-was-never-compared-not-reported",
        "sql/functions/operations/conditions.sql",
        "         and coalesce(w.compared_at, sent.at) < clock_timestamp()",
        "         and w.compared_at < clock_timestamp()",
        f"{LATER}"
        "::test_a_company_is_due_while_documents_may_have_changed_since_its_comparison"
        "[None-26-True]",
    ),
    Mutant(
        "submission-with-refused-polls-not-reviewed",
        "service/submission/machine/state_machine.py",
        "        if _needs_review(submission, since, times):\n",
        "        if False:\n",
        f"{LOST}::test_submission_whose_polls_are_refused_for_a_day_needs_manual_review",
    ),
    never(
        "start-of-refused-polls-forgotten",
        "service/submission/store.py",
        'error.get("code") == "Refused"',
        f"{LOST}::test_polls_are_refused_until_a_submission_needs_manual_review",
    ),
    Mutant(
        "document-valid-only-at-the-portal-not-reported",
        "service/submission/machine/comparison_rules.py",
        '        if listed.status == "Valid" and (row := final.get(listed.uuid)):\n',
        '        if listed.status == "Unknown" and (row := final.get(listed.uuid)):\n',
        f"{COMPARISON}::test_a_document_that_is_valid_only_at_the_portal_is_an_orphan",
    ),
    removal(
        "second-valid-document-of-an-invoice-called-an-orphan",
        "service/submission/machine/comparison_rules.py",
        "DUPLICATE if row.document_id in live else ",
        f"{COMPARISON}::test_a_valid_document_with_a_later_live_submission_is_a_duplicate",
    ),
    removal(
        "cancellation-that-is-not-listed-yet-reported",
        "service/submission/machine/comparison_rules.py",
        " and row.updated_at <= settled_at",
        f"{COMPARISON}::test_a_listing_that_lags_behind_a_cancellation_is_no_finding",
    ),
    removal(
        "valid-document-without-its-time-is-polled-no-more",
        COMPARISONS,
        "                                    or d.validated_at is null\n",
        f"{LATER}::test_a_comparison_adds_details_that_a_valid_document_lacked",
    ),
    removal(
        "valid-document-without-its-time-is-finished",
        "service/submission/machine/state_machine.py",
        " or submission.last_sent_at",
        "tests/submission/test_machine.py"
        "::test_valid_documents_are_read_until_two_hours_after_the_cancel_window"
        "[73.9-Accepted-False]",
    ),
    Mutant(
        "recorded-rejection-request-written-again",
        SUBMISSIONS,
        "   and (d.long_id, d.validation_link, d.validated_at, d.rejection_requested_at,"
        " d.rejection_reason)\n",
        "   and (d.long_id, d.validation_link, d.validated_at, d.rejection_requested_at, 'x')\n",
        f"{LATER}::test_a_rejection_request_that_is_recorded_is_not_written_again",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *EXCLUSION,
    *EVIDENCE,
    *ONCE,
    *KEPT,
    *AUDITED,
    *VISITORS,
    *ENTERED,
    *APART,
    *EXACT,
    *OUTCOMES,
    *PORTAL_RULES,
    *REPLICAS,
    *CELLS,
    *LIMITED,
    *HELD,
    *PROVEN_FAILOVERS,
    *ACCEPTED,
    *PEOPLE,
    *UNSENT,
    *EMBEDDED,
    *RESPONSES,
    *FOLLOWED,
)
