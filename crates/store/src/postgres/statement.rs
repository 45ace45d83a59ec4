//! Every statement, from the `.sql` file of its name. The list lets a test prepare each and look at its plan.

macro_rules! statements {
    ($($constant:ident = $file:literal;)+) => {
        $(pub const $constant: &str = include_str!(concat!("sql/", $file, ".sql"));)+

        /// Name and text of each.
        #[cfg(test)]
        pub const ALL: &[(&str, &str)] = &[$(($file, $constant)),+];
    };
}

statements! {
    ACCEPT_EVENT = "accept_event";
    ASSIGN_CHUNK = "assign_chunk";
    CANCEL_ROW = "cancel_row";
    CHUNK_ROWS = "chunk_rows";
    CLAIM_CHUNK = "claim_chunk";
    CLAIM_FRESH = "claim_fresh";
    CLAIM_THESE = "claim_these";
    CLAIM_UNFINISHED = "claim_unfinished";
    CLAIMED_JOBS = "claimed_jobs";
    CLOSE_EVENTS = "close_events";
    CONFIRM_ROWS = "confirm_rows";
    COUNT_FAILURE = "count_failure";
    DEAD_ADDRESSES_OF = "dead_addresses_of";
    DEFAULT_SETTINGS = "default_settings";
    DELETE_CHUNK = "delete_chunk";
    DELETE_CLAIM = "delete_claim";
    EXPIRED_CLAIMS = "expired_claims";
    FAIL_ROW = "fail_row";
    FINISH_EVENT = "finish_event";
    GIVE_UP_EVENT = "give_up_event";
    GIVE_UP_PROCESSED = "give_up_processed";
    GROUP_SETTINGS = "group_settings";
    GROUPS = "groups";
    INSERT_ATTEMPT = "insert_attempt";
    INSERT_CAPTURED = "insert_captured";
    INSERT_CHUNK = "insert_chunk";
    INSERT_DEAD_LETTER = "insert_dead_letter";
    INSERT_DUE = "insert_due";
    INSERT_EVENT_NOTIFICATION = "insert_event_notification";
    INSERT_OUTBOX = "insert_outbox";
    KNOWN_EVENT = "known_event";
    KNOWN_HASH = "known_hash";
    LIST_CAPTURED = "list_captured";
    LIST_CAPTURED_OF = "list_captured_of";
    LOCK_REPUBLISH = "lock_republish";
    LOST_ROWS = "lost_rows";
    NEXT_DUE = "next_due";
    NOW = "now";
    OPEN_EVENTS = "open_events";
    PAGE_ENTITY = "page_entity";
    PAGE_EVERYBODY = "page_everybody";
    PAGE_USER = "page_user";
    PREFERENCES_OF = "preferences_of";
    RECEIVE_NOTIFICATION = "receive_notification";
    RECEIVE_ROW = "receive_row";
    RECEIVE_SEND = "receive_send";
    RECIPIENT_KIND = "recipient_kind";
    REFUSE_ROW = "refuse_row";
    RELEASE_CHUNK = "release_chunk";
    RULE_VERSION = "rule_version";
    SETTLE_SEND = "settle_send";
    TAKE_DUE = "take_due";
    TRACE_DEAD_LETTERS = "trace_dead_letters";
    TRACE_EVENT = "trace_event";
    TRACE_NOTIFICATIONS = "trace_notifications";
    TRACE_OUTBOX = "trace_outbox";
    TRACE_PEOPLE = "trace_people";
    TRACE_PROCESSED = "trace_processed";
    TRACE_SENDS = "trace_sends";
    TRACE_USERS = "trace_users";
    WRITE_PROCESSED = "write_processed";
}
