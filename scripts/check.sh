#!/usr/bin/env bash
# check.sh: what to run before each commit, in under three minutes once all is compiled: format, tidy, clippy, the unit tests of libraries,
# some seeds of the simulator, and black-box tests that touch each part. `make test` runs everything.
set -euo pipefail

cd "$(dirname "$0")/.."
. scripts/steps.sh

SEEDS=200

# One or two of each subject, of those that take least.
SMOKE=(
    http::what_does_not_exist_is_named
    http::an_idempotency_key_belongs_to_one_request
    http::calls_to_other_shards_join_the_transaction
    transactions::duplicates_that_come_together_are_one_effect_and_one_reply
    transactions::a_circle_of_calls_is_ended_and_its_entities_are_free
    workflows::the_journal_tells_what_was_done_in_order
    workflows::signals_are_taken_once_and_in_order_before_the_wait_and_after_it
    crash::an_app_that_was_deployed_is_there_after_a_kill
    crash_examples::single_counts_each_call_once
    durability::with_fsync_every_acknowledged_write_has_had_one
    records::a_record_is_put_read_changed_and_deleted
    records::queries_use_indexes_and_agree_with_a_scan
    containment::endless_work_ends_at_the_cpu_limit
    keys::each_role_allows_what_it_says_and_nothing_else
)

# smoke: the tests above, none of which may be gone.
smoke() {
    local told
    told=$(MILLRACE_TEST_KILLS=2 black_box --exact "${SMOKE[@]}" 2>&1) || { echo "$told" && return 1; }
    grep -q "ok. ${#SMOKE[@]} passed" <<<"$told" || { echo "$told" && return 1; }
}

step format cargo fmt --all --check
step tidy tidy
step build cargo build --quiet --release --locked -p millrace-server
step clippy clippy
step "unit tests" cargo test --quiet --release --locked --workspace --lib --bin millrace --bin xtask
step "$SEEDS seeds" cargo run --quiet --release --locked --bin millrace-sim -- --seeds "$SEEDS"
step "black-box smoke tests" smoke
echo "== all checks passed after $SECONDS s"
