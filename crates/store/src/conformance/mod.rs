//! The behaviour that every database must show, as checks that run against each of them.
//!
//! [`for_each_check!`](crate::for_each_check) lists all checks. The test file of each database turns every check into
//! one test. A check that is missing from the list is dead code, and the compiler reports it.
//!
//! Each check gets its own [`Fixture`]: a new database that contains only what migrations write. A check never relies
//! on a feature of one database. A claim of events may or may not lock them. So a check never has two open claims of
//! the same event, and never changes an event while a claim of it is open.

mod accept;
mod address;
mod address_claim;
mod api_key;
mod audit;
mod candidates;
mod close;
mod commit;
mod context;
mod dead_letter;
mod deferral;
mod event_claim;
mod event_search;
mod idempotency;
mod named_lease;
mod publish;
mod queue_age;
mod receipt;
mod receive;
mod retain;
mod row;
mod rule;
mod send_admin;
mod send_claim;
mod settle;
pub(crate) mod setup;
mod signing_key;
mod stages;
mod trace;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::Store;

/// A database for one check only.
#[derive(Debug)]
pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub test_database: Box<dyn TestDatabase>,
}

/// What a check can't do with the store alone. The SQL uses only what every dialect supports, and only documented names
/// of tables and views.
#[async_trait]
pub trait TestDatabase: Debug + Send + Sync {
    /// Moves the database's clock forward.
    async fn advance(&self, by: Duration);

    /// Runs a statement on its own connection, as another process would.
    async fn execute(&self, sql: &str);

    /// Returns the number that a query selects.
    async fn count(&self, sql: &str) -> i64;
}

/// Calls the macro of this name with the list of checks, as `group::check`.
#[macro_export]
macro_rules! for_each_check {
    ($with:ident) => {
        $with! {
            accept::a_new_event_is_created_and_pending
            accept::the_same_event_again_is_not_created
            accept::another_body_under_a_known_id_conflicts_and_nothing_is_written
            accept::an_id_is_known_after_its_event_is_gone
            accept::an_old_event_inserted_again_is_known
            accept::an_event_fails_after_as_many_failures_as_allowed
            accept::an_event_that_failed_half_way_may_be_redone
            accept::an_event_that_is_given_up_half_way_keeps_what_was_written
            accept::an_old_event_that_fails_stays_known
            event_claim::nothing_waits_in_an_empty_database
            event_claim::high_goes_before_normal_before_low
            event_claim::an_urgent_claim_takes_what_is_high_and_nothing_else
            event_claim::claims_at_the_same_time_have_nothing_in_common
            event_claim::the_oldest_goes_first_in_its_lane
            event_claim::the_route_says_how_urgent_an_event_is_that_does_not
            event_claim::the_routes_of_any_type_count_for_a_type_without_its_own
            event_claim::a_claim_takes_no_more_than_its_limit
            event_claim::an_event_comes_back_as_it_was_accepted
            event_claim::an_event_that_a_producer_inserts_is_claimed
            event_claim::a_claim_that_is_dropped_leaves_everything_as_it_was
            event_claim::new_and_continuing_events_are_claimed_apart
            event_claim::the_most_urgent_continuing_event_goes_first
            event_claim::only_urgent_events_go_on_where_only_those_are_asked_for
            event_claim::continuing_events_of_a_lane_take_turns
            event_claim::these_events_are_claimed_again_where_they_still_wait
            event_claim::a_cancelled_event_says_why
            event_claim::an_event_that_can_not_be_read_fails_and_is_reported
            event_claim::a_payload_that_readers_disagree_on_fails_its_event_and_is_shown_as_text
            event_claim::a_payload_is_kept_unchanged
            event_claim::names_that_http_refuses_fail_their_event
            candidates::members_come_by_rank_then_by_id
            candidates::everybody_comes_by_entity_then_rank_then_id
            candidates::ids_are_compared_bytewise
            candidates::pages_of_an_entity_cover_its_members_once
            candidates::pages_of_everybody_cover_them_once
            candidates::a_user_is_one_page
            candidates::the_inactive_are_left_out
            candidates::only_the_roles_that_are_asked_for_come
            candidates::the_same_ids_of_other_types_are_left_out
            candidates::pages_are_answered_in_the_order_in_which_they_are_asked_for
            candidates::preferences_and_dead_addresses_come_along
            candidates::a_default_webhook_that_is_dead_is_known_of_those_who_need_it
            candidates::who_is_on_two_pages_has_every_preference_once
            candidates::a_group_has_its_kind_and_its_own_settings
            candidates::what_can_not_be_used_of_a_recipient_is_taken_for_empty
            candidates::a_preference_or_setting_that_can_not_be_used_is_skipped
            commit::an_event_with_rows_is_published
            commit::an_event_without_rows_is_processed
            commit::an_event_that_continues_keeps_its_cursor_and_waits
            commit::a_cursor_that_was_passed_is_lost_and_nothing_is_written
            commit::an_event_that_was_finished_is_lost
            commit::one_lost_event_undoes_the_whole_commit
            commit::a_failed_event_has_a_dead_letter_and_may_be_redone
            commit::an_event_that_stops_half_way_keeps_what_was_written
            commit::a_known_event_is_processed_and_nobody_is_told
            commit::a_cancelled_event_ends_so
            commit::an_event_that_is_cancelled_half_way_keeps_what_was_written
            commit::rows_that_can_not_be_sent_fail_with_dead_letters
            commit::what_is_shared_is_written_once_per_entity
            commit::who_has_the_row_already_is_not_told_again
            commit::of_many_only_who_has_the_row_already_is_left_out
            context::a_message_is_rendered_from_its_event_and_its_recipient
            publish::a_chunk_born_leased_is_handed_over_and_held_until_its_lease_passes
            publish::a_chunk_born_free_waits_for_whoever_claims_it
            publish::chunks_are_claimed_by_lane_then_by_age
            publish::only_chunks_of_the_given_queue_are_claimed
            publish::a_claimed_chunk_has_what_was_committed
            publish::a_claimed_chunk_has_every_row_in_whatever_order_they_came
            publish::a_claimed_chunk_is_held_until_its_lease_passes
            publish::a_published_chunk_is_no_more
            publish::a_released_chunk_can_be_claimed_at_once
            publish::rows_that_were_received_meanwhile_are_not_published_again
            publish::rows_that_failed_meanwhile_are_not_published_again
            publish::a_refused_row_waits_while_the_others_are_published
            publish::a_row_that_is_refused_too_often_fails_with_a_dead_letter
            publish::a_late_refusal_does_not_touch_what_was_received
            publish::what_the_broker_lost_is_published_again
            publish::what_the_broker_lost_of_a_large_event_is_published_again
            publish::what_is_lost_is_found_in_pages
            publish::a_search_goes_on_although_its_event_is_closed
            publish::more_events_than_a_page_has_are_looked_through
            publish::only_what_was_written_long_enough_ago_is_published_again
            publish::an_outbox_row_goes_from_pending_to_published_to_delivered
            receive::a_row_becomes_a_notification_and_a_send
            receive::a_redelivered_row_is_skipped
            receive::an_unknown_key_does_not_stop_the_rest
            receive::a_web_socket_send_is_sent_at_once
            receive::what_is_not_claimed_is_due_at_once
            receive::the_channels_of_a_user_share_a_notification
            receive::users_of_two_types_with_one_id_are_two
            receive::every_channel_of_a_second_notification_is_cancelled
            receive::a_second_notification_of_an_event_is_cancelled
            receive::the_inbox_has_the_text_of_the_inbox
            receive::a_large_payload_stays_out_of_the_inbox
            receive::a_row_that_failed_is_not_received
            receive::a_message_that_can_not_be_received_fails_its_row
            settle::a_first_success_is_sent_and_leaves_no_attempt
            settle::a_captured_message_is_kept_if_it_was_sent
            settle::a_retry_is_due_and_its_attempt_is_kept
            settle::a_success_after_a_retry_is_kept_as_an_attempt
            settle::a_send_that_failed_has_a_dead_letter
            settle::a_best_effort_channel_fails_without_a_dead_letter
            settle::a_send_in_doubt_is_left_to_a_person
            settle::what_was_not_attempted_does_not_count
            settle::a_send_that_fails_without_an_attempt_says_why
            settle::an_outcome_without_its_claim_is_lost_and_nothing_is_written
            settle::what_is_lost_does_not_stop_the_rest
            settle::of_two_outcomes_of_a_send_only_the_one_under_the_present_claim_counts
            deferral::a_deferral_is_no_attempt_and_stands_on_the_send
            deferral::a_send_that_was_deferred_for_too_long_is_a_dead_letter_and_a_replay_begins_anew
            deferral::who_lost_the_claim_writes_no_deferral
            deferral::that_nobody_answered_is_known_to_the_next_attempt
            address::what_became_of_each_address_is_kept
            address::a_retry_goes_to_the_addresses_that_are_left
            address::what_a_dead_instance_left_goes_to_the_addresses_that_are_left
            address::a_replay_goes_to_the_addresses_that_are_left
            address::a_send_whose_every_address_is_done_with_keeps_them
            address::one_address_is_not_kept_apart
            address::an_address_that_is_done_with_twice_is_kept_once
            address::a_dead_address_is_known_from_then_on
            address::who_lost_the_claim_declares_nobody_dead
            address::a_retry_knows_whether_another_device_was_sent_to
            address::what_was_declared_dead_while_it_waited_is_left_out
            address::an_address_that_no_index_takes_is_not_kept_and_nothing_is_lost_by_it
            address_claim::the_first_that_asks_sends_and_the_others_wait_until_it_did
            address_claim::of_many_at_once_one_sends
            address_claim::another_event_or_webhook_is_claimed_apart
            address_claim::who_failed_leaves_the_address_to_the_next
            address_claim::who_may_have_sent_keeps_the_address_claim
            address_claim::who_lost_the_claim_releases_no_address_claim
            address_claim::a_message_may_have_been_sent_only_under_the_claim_that_asked_for_it
            address_claim::who_slept_past_its_claim_gets_no_address_claim
            receipt::a_receipt_is_kept_and_the_status_stays
            receipt::a_receipt_may_overtake_the_outcome
            receipt::a_receipt_of_another_message_is_left_alone
            receipt::a_late_receipt_replaces_nothing_later
            receipt::a_receipt_of_an_earlier_message_goes_with_the_next_one
            receipt::a_receipt_of_a_second_message_may_overtake_its_outcome
            receipt::a_receipt_in_unknown_words_is_no_obstacle
            send_claim::a_claim_expires_by_the_clock_of_the_database_and_not_before
            send_claim::an_expired_claim_has_what_is_still_being_sent
            send_claim::a_finished_claim_does_not_expire
            send_claim::a_claim_that_was_taken_over_writes_nothing
            send_claim::claims_rise
            send_claim::a_holder_renews_its_claim_until_it_has_expired
            send_claim::a_claim_that_is_gone_is_not_renewed
            send_claim::due_sends_are_claimed_by_lane_then_by_due_time
            send_claim::a_send_is_not_claimed_before_it_is_due
            send_claim::a_due_send_is_claimed_once
            send_claim::only_due_sends_of_the_channel_are_claimed_and_no_more_than_asked
            send_claim::the_next_due_time_is_the_earliest_of_its_channel
            close::an_event_is_closed_when_every_row_was_received_or_failed
            close::an_event_with_a_row_on_its_way_stays_open
            close::only_published_events_among_the_candidates_are_closed
            close::what_somebody_counted_is_closed_without_a_query
            close::open_events_come_in_pages_by_age
            dead_letter::dead_letters_are_listed_in_pages_by_age
            dead_letter::a_dead_letter_has_all_its_columns
            dead_letter::dead_letters_are_filtered
            dead_letter::one_dead_letter_is_found_by_its_id
            dead_letter::what_failed_after_a_moment_is_left_out
            dead_letter::dead_letters_that_were_replayed_are_listed_where_they_are_asked_for
            dead_letter::a_failed_event_that_is_replayed_begins_again
            dead_letter::an_event_that_was_given_up_and_is_replayed_may_fail_as_often_again
            dead_letter::an_event_of_which_some_were_told_is_not_replayed
            dead_letter::a_row_without_its_text_is_replayed_once_it_has_one
            dead_letter::a_refused_row_that_is_replayed_waits_in_a_chunk
            dead_letter::a_row_that_was_not_received_and_is_replayed_waits_in_a_chunk
            dead_letter::a_closed_event_is_open_until_its_replayed_row_arrives
            dead_letter::a_row_that_failed_and_was_received_all_the_same_is_repaired_by_a_replay
            dead_letter::an_event_that_is_not_closed_stays_so_when_its_row_is_replayed
            dead_letter::a_failed_send_that_is_replayed_is_due_now_with_all_its_attempts
            dead_letter::a_replayed_send_has_its_lane
            dead_letter::what_is_on_its_way_or_arrived_is_not_replayed
            dead_letter::a_dead_letter_of_what_is_no_longer_stored_is_skipped
            dead_letter::a_second_replay_changes_nothing
            dead_letter::dead_letters_are_replayed_in_pages_and_by_the_filter
            dead_letter::what_is_skipped_does_not_stop_the_rest
            send_admin::sends_in_doubt_are_listed_the_oldest_first
            send_admin::due_sends_are_listed_as_they_are_taken
            send_admin::all_sends_are_listed_the_newest_first
            send_admin::sends_are_filtered
            send_admin::the_sends_of_an_event_come_by_recipient
            send_admin::a_page_scans_a_bounded_number_of_sends
            send_admin::what_is_resent_is_due_at_once_and_keeps_its_count
            send_admin::what_is_settled_as_sent_stays_so
            send_admin::what_is_settled_as_failed_has_a_dead_letter_and_may_be_replayed
            send_admin::only_what_is_in_doubt_is_resolved
            send_admin::of_several_persons_at_once_one_decides
            retain::an_old_event_goes_with_all_that_belongs_to_it
            retain::an_event_that_is_forgotten_is_still_known
            retain::an_event_that_nobody_remembers_is_remembered_before_it_goes
            retain::a_young_event_stays
            retain::an_event_that_is_not_closed_stays
            retain::failed_and_cancelled_events_go_too
            retain::a_send_that_is_not_settled_keeps_its_row_and_its_event
            retain::a_large_event_goes_over_several_calls_and_last_itself
            retain::a_sweep_passes_over_what_stays
            retain::only_events_behind_the_cursor_go
            retain::old_dead_letters_of_no_event_go
            retain::dead_letters_of_an_event_stay_as_long_as_it
            retain::old_captured_messages_go_before_their_event
            retain::an_event_that_was_brought_back_stays
            retain::a_clock_that_jumps_ahead_deletes_nothing
            retain::the_horizon_follows_a_clock_that_is_right
            retain::the_horizon_begins_at_the_oldest_event_that_may_go
            named_lease::a_lease_that_nobody_holds_is_taken
            named_lease::a_lease_that_is_held_says_by_whom_and_for_how_long
            named_lease::a_holder_renews_its_lease
            named_lease::a_lease_that_has_passed_is_taken_over
            named_lease::a_lease_that_was_given_back_is_free
            named_lease::leases_of_other_names_are_others
            named_lease::of_two_at_once_one_gets_the_lease
            api_key::a_key_comes_back_as_it_was_created
            api_key::keys_are_listed_the_newest_first
            api_key::a_revoked_key_stays_revoked
            api_key::the_use_of_a_key_is_recorded_once_a_minute
            api_key::the_making_and_the_end_of_a_key_are_recorded_without_its_secret
            audit::each_change_of_a_row_is_recorded_with_before_and_after
            audit::a_row_that_stays_as_it_was_is_not_recorded
            audit::a_refused_write_is_not_recorded
            audit::changes_are_listed_by_thing_and_by_actor
            audit::the_oldest_changes_are_deleted
            idempotency::a_finished_request_is_answered_again
            idempotency::a_request_in_flight_keeps_others_away
            idempotency::a_request_that_died_blocks_for_a_minute_and_its_late_answer_is_ignored
            idempotency::an_abandoned_request_may_be_repeated_at_once
            idempotency::a_key_is_forgotten_after_a_day
            signing_key::of_several_first_keys_one_is_used
            signing_key::a_rotated_key_signs_and_the_older_ones_stay_until_they_are_revoked
            row::rows_come_back_as_they_were_written
            row::what_a_row_does_not_name_has_its_default
            row::a_row_is_replaced_by_its_key
            row::a_bad_row_undoes_the_whole_put
            row::pages_cover_every_row_once
            row::rows_are_filtered
            row::a_deleted_row_is_gone
            row::a_row_that_somebody_damaged_is_listed_as_it_is
            row::rows_of_another_table_are_refused
            rule::the_version_rises_with_every_change_of_a_rule
            rule::the_version_stays_when_no_rule_changes
            rule::rules_come_back_as_they_were_written
            rule::default_routes_are_there_from_the_start
            rule::a_rule_that_can_not_be_used_does_not_hide_the_others
            stages::a_name_keeps_its_number
            stages::an_instance_tries_to_write_in_its_own_row
            stages::a_database_is_told_from_others
            stages::a_trace_has_instance_and_time_of_every_stage
            stages::a_retry_has_instance_and_time_of_each_attempt
            stages::what_a_dead_instance_left_is_traced_to_it
            stages::what_was_released_has_no_attempt_and_no_outcome
            stages::a_stamp_of_the_future_is_cut_to_the_receipt
            stages::messages_without_a_stamp_are_received_all_the_same
            stages::a_fan_out_is_traced_to_this_event_and_not_to_its_namesake
            stages::an_event_that_fails_again_is_traced_to_the_last_time
            trace::an_unknown_event_has_no_trace
            trace::a_trace_tells_what_happened
            trace::what_somebody_damaged_is_shown_as_it_is_stored
            trace::a_trace_names_who_was_considered
            trace::a_trace_comes_in_pages_of_users
            trace::a_trace_of_one_user_tells_of_nobody_else
            trace::a_trace_of_one_user_has_the_dead_letters_of_that_user_and_of_the_event
            trace::captured_messages_are_listed_in_pages
            event_search::events_are_listed_from_both_ends
            event_search::events_are_filtered_by_status_and_type
            event_search::events_of_an_aggregate_are_found
            event_search::events_of_which_a_user_was_notified_are_found
            event_search::events_of_a_time_are_found
            event_search::failed_events_are_found_by_their_code
            event_search::a_page_that_skips_much_says_where_to_go_on
            trace::the_clock_moves_as_the_fixture_says
            queue_age::where_nothing_waits_nothing_is_old
            queue_age::an_event_waits_from_its_arrival_until_its_fan_out_has_ended
            queue_age::the_oldest_event_of_any_lane_counts
            queue_age::a_chunk_waits_from_its_rows_until_it_is_published
            queue_age::a_chunk_waits_although_its_first_row_was_dropped
            queue_age::an_event_waits_from_its_fan_out_until_it_is_received
            queue_age::an_event_that_was_fanned_out_earlier_counts_before_one_that_arrived_earlier
            queue_age::a_send_waits_from_when_it_is_due
            queue_age::the_oldest_send_of_any_channel_and_lane_counts
            queue_age::a_claim_waits_from_when_its_lease_has_passed
        }
    };
}

macro_rules! export {
    ($($group:ident :: $check:ident)+) => { $(pub use $group::$check;)+ };
}
for_each_check!(export);
