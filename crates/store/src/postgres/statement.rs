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
    DELETE_ATTEMPTS = "delete_attempts";
    DELETE_CANCEL = "delete_cancel";
    DELETE_CAPTURED_OF = "delete_captured_of";
    DELETE_CHUNK = "delete_chunk";
    DELETE_CLAIM = "delete_claim";
    DELETE_EVENT = "delete_event";
    DELETE_LETTERS_OF = "delete_letters_of";
    DELETE_NOTIFICATION = "delete_notification";
    DELETE_OLD_CAPTURED = "delete_old_captured";
    DELETE_ROW = "delete_row";
    DELETE_SEND = "delete_send";
    DELETE_SHARED_OF = "delete_shared_of";
    DELETE_STRAY_LETTERS = "delete_stray_letters";
    EVENT_STATUS = "event_status";
    EXPIRED_CLAIMS = "expired_claims";
    FAIL_ROW = "fail_row";
    FINISH_EVENT = "finish_event";
    FORGET_DECISIONS = "forget_decisions";
    FORGOTTEN_EVENT = "forgotten_event";
    GIVE_UP_EVENT = "give_up_event";
    GIVE_UP_PROCESSED = "give_up_processed";
    GROUP_SETTINGS = "group_settings";
    GROUPS = "groups";
    HOLD_LEASE = "hold_lease";
    INSERT_ATTEMPT = "insert_attempt";
    INSERT_CAPTURED = "insert_captured";
    INSERT_CHUNK = "insert_chunk";
    INSERT_DEAD_LETTER = "insert_dead_letter";
    INSERT_DUE = "insert_due";
    INSERT_EVENT_NOTIFICATION = "insert_event_notification";
    INSERT_OUTBOX = "insert_outbox";
    KNOWN_EVENT = "known_event";
    KNOWN_HASH = "known_hash";
    LEASE_HOLDER = "lease_holder";
    LET_LEASE_GO = "let_lease_go";
    LETTER_ROW = "letter_row";
    LIST_CAPTURED = "list_captured";
    LIST_CAPTURED_OF = "list_captured_of";
    LIST_DEAD_LETTERS = "list_dead_letters";
    LIST_DEAD_LETTERS_OF = "list_dead_letters_of";
    LOCK_CLOSE = "lock_close";
    LOCK_REPLAY = "lock_replay";
    LOCK_REPUBLISH = "lock_republish";
    LOCK_RETAIN = "lock_retain";
    LOST_ROWS = "lost_rows";
    MARK_REPLAYED = "mark_replayed";
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
    REMEMBER_EVENT = "remember_event";
    REOPEN_EVENT = "reopen_event";
    REPLAY_EVENT = "replay_event";
    REPLAY_ROW = "replay_row";
    REPLAY_SEND = "replay_send";
    RETAIN_PAGE = "retain_page";
    ROWS_DONE_WITH = "rows_done_with";
    ROWS_LEFT = "rows_left";
    RULE_VERSION = "rule_version";
    SETTLE_SEND = "settle_send";
    TAKE_DUE = "take_due";
    TELL = "tell";
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
