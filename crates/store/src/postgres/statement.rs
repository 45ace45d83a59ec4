//! Every SQL statement, loaded from the `.sql` file of the same name.

statements! {
    ACCEPT_EVENT = "event/accept_event";
    CLOSE_COMPLETE = "event/close_complete";
    CLOSE_EVENTS = "event/close_events";
    COUNT_FAILURE = "event/count_failure";
    GIVE_UP_EVENT = "event/give_up_event";
    GIVE_UP_PROCESSED = "event/give_up_processed";
    KNOWN_EVENT = "event/known_event";
    KNOWN_HASH = "event/known_hash";
    LOCK_CLOSE = "event/lock_close";
    OPEN_EVENTS = "event/open_events";

    CLAIM_NEW = "fan_out/claim_new";
    CLAIM_BY_IDS = "fan_out/claim_by_ids";
    CLAIM_CONTINUING = "fan_out/claim_continuing";
    FINISH_EVENT = "fan_out/finish_event";
    INSERT_EVENT_NOTIFICATION = "fan_out/insert_event_notification";
    INSERT_NEW_EVENT_NOTIFICATION = "fan_out/insert_new_event_notification";
    INSERT_NEW_OUTBOX = "fan_out/insert_new_outbox";
    INSERT_NEW_PROCESSED = "fan_out/insert_new_processed";
    INSERT_OUTBOX = "fan_out/insert_outbox";
    WRITE_PROCESSED = "fan_out/write_processed";

    DEAD_ADDRESSES = "audience/dead_addresses";
    GROUP_SETTINGS = "audience/group_settings";
    GROUPS = "audience/groups";
    PAGE_ENTITY = "audience/page_entity";
    PAGE_EVERYBODY = "audience/page_everybody";
    PAGE_USER = "audience/page_user";
    PREFERENCES_OF = "audience/preferences_of";

    ASSIGN_CHUNK = "outbox/assign_chunk";
    CHUNK_ROWS = "outbox/chunk_rows";
    CLAIM_CHUNK = "outbox/claim_chunk";
    CONFIRM_ROWS = "outbox/confirm_rows";
    DELETE_CHUNK = "outbox/delete_chunk";
    INSERT_CHUNK = "outbox/insert_chunk";
    LOCK_REPUBLISH = "outbox/lock_republish";
    LOCK_WRITES = "row/lock_writes";
    LOST_ROWS = "outbox/lost_rows";
    COUNT_REFUSAL = "outbox/count_refusal";
    RELEASE_CHUNK = "outbox/release_chunk";

    CANCEL_ROW = "send/cancel_row";
    CLAIMED_SENDS = "send/claimed_sends";
    DELETE_CLAIM = "send/delete_claim";
    EXPIRED_CLAIMS = "send/expired_claims";
    FAIL_ROW = "send/fail_row";
    INSERT_DUE = "send/insert_due";
    NEXT_DUE = "send/next_due";
    RECORD_RECEIPT = "send/record_receipt";
    RECEIVE = "send/receive";
    RECEIVE_NEW = "send/receive_new";
    RECEIVE_ROW = "send/receive_row";
    RECEIVE_SEND = "send/receive_send";
    RENEW_CLAIM = "send/renew_claim";
    CLAIM_DUE = "send/claim_due";

    INSERT_ATTEMPT = "settle/insert_attempt";
    INSERT_CAPTURED = "settle/insert_captured";
    INSERT_DEAD_ADDRESS = "settle/insert_dead_address";
    INSERT_DEAD_LETTER = "settle/insert_dead_letter";
    UPSERT_SEND_ADDRESS = "settle/upsert_send_address";
    SETTLE_SEND = "settle/settle_send";
    WRITE_HISTORY = "settle/write_history";

    CLAIM_ADDRESS = "send_once/claim_address";
    RELEASE_ADDRESS_CLAIM = "send_once/release_address_claim";
    ADDRESS_CLAIM_HOLDER = "send_once/address_claim_holder";
    MAY_HAVE_SENT = "send_once/may_have_sent";

    FIND_SEND_TO_RESOLVE = "send_admin/find_send_to_resolve";
    LIST_SENDS_IN_DOUBT = "send_admin/list_sends_in_doubt";
    LIST_DUE = "send_admin/list_due";
    LIST_SENDS = "send_admin/list_sends";
    LIST_SENDS_OF_EVENT = "send_admin/list_sends_of_event";
    RESOLVE_SEND = "send_admin/resolve_send";

    EVENT_STATUS = "dead_letter/event_status";
    DEAD_LETTER_ROW = "dead_letter/dead_letter_row";
    LIST_DEAD_LETTERS = "dead_letter/list_dead_letters";
    LIST_DEAD_LETTERS_OF_EVENT = "dead_letter/list_dead_letters_of_event";
    LOCK_REPLAY = "dead_letter/lock_replay";
    MARK_REPLAYED = "dead_letter/mark_replayed";
    REOPEN_EVENT = "dead_letter/reopen_event";
    REPLAY_EVENT = "dead_letter/replay_event";
    REPLAY_ROW = "dead_letter/replay_row";
    REPLAY_SEND = "dead_letter/replay_send";
    UPDATE_ROW_TEXT = "dead_letter/update_row_text";

    LAST_EVENT = "trace/last_event";
    NEXT_EVENT = "trace/next_event";
    LIST_CAPTURED = "trace/list_captured";
    LIST_CAPTURED_OF_EVENT = "trace/list_captured_of_event";
    TRACE_DEAD_LETTERS = "trace/trace_dead_letters";
    TRACE_EVENT = "trace/trace_event";
    TRACE_NOTIFICATIONS = "trace/trace_notifications";
    TRACE_OUTBOX = "trace/trace_outbox";
    TRACE_RECIPIENTS = "trace/trace_recipients";
    TRACE_PROCESSED = "trace/trace_processed";
    TRACE_SENDS = "trace/trace_sends";
    TRACE_PAGE_END = "trace/trace_page_end";

    QUEUE_AGES = "queue_age/queue_ages";

    BEGIN_HORIZON = "retain/begin_horizon";
    DELETE_ATTEMPTS = "retain/delete_attempts";
    DELETE_CANCEL = "retain/delete_cancel";
    DELETE_CAPTURED_OF = "retain/delete_captured_of";
    DELETE_EVENT = "retain/delete_event";
    DELETE_DEAD_LETTERS_OF = "retain/delete_dead_letters_of";
    DELETE_NOTIFICATION = "retain/delete_notification";
    DELETE_OLD_CAPTURED = "retain/delete_old_captured";
    DELETE_SEND_ONCE_OF = "retain/delete_send_once_of";
    DELETE_ROW = "retain/delete_row";
    DELETE_SEND = "retain/delete_send";
    DELETE_SEND_ADDRESSES = "retain/delete_send_addresses";
    DELETE_EVENT_NOTIFICATIONS_OF = "retain/delete_event_notifications_of";
    DELETE_DEAD_LETTERS_WITHOUT_EVENT = "retain/delete_dead_letters_without_event";
    CLEAR_DECISIONS = "retain/clear_decisions";
    EVENT_WITHOUT_PROCESSED = "retain/event_without_processed";
    LOCK_RETAIN = "retain/lock_retain";
    MOVE_HORIZON = "retain/move_horizon";
    READ_HORIZON = "retain/read_horizon";
    REMEMBER_EVENT = "retain/remember_event";
    RETAIN_PAGE = "retain/retain_page";
    FINISHED_ROWS = "retain/finished_rows";
    HAS_ROWS = "retain/has_rows";

    ACQUIRE_LEASE = "named_lease/acquire_lease";
    LEASE_HOLDER = "named_lease/lease_holder";
    RELEASE_LEASE = "named_lease/release_lease";

    WRITE_PROBE = "instance/write_probe";
    REGISTER_INSTANCE = "instance/register_instance";

    DEFAULT_SETTINGS = "rule/default_settings";
    RECIPIENT_RELATION = "rule/recipient_relation";
    RULE_VERSION = "rule/rule_version";

    LOCK_SUPPRESS_NOTIFY = "signal/lock_suppress_notify";
    NOTIFY = "signal/notify";

    NOW = "database/now";
    DATABASE_IDENTITY = "database/database_identity";

    INSERT_API_KEY = "api_key/insert_api_key";
    FIND_API_KEY = "api_key/find_api_key";
    LIST_API_KEYS = "api_key/list_api_keys";
    REVOKE_API_KEY = "api_key/revoke_api_key";
    RECORD_API_KEY_USE = "api_key/record_use";

    INSERT_AUDIT = "audit/insert_audit";
    LIST_AUDIT = "audit/list_audit";
    LIST_AUDIT_OF_TYPE = "audit/list_audit_of_type";
    LIST_AUDIT_OF_OBJECT = "audit/list_audit_of_object";
    LIST_AUDIT_OF_ACTOR = "audit/list_audit_of_actor";
    DELETE_OLD_AUDIT = "audit/delete_old_audit";

    BEGIN_REQUEST = "idempotency/begin_request";
    TAKEN_IDEMPOTENCY_KEY = "idempotency/taken_key";
    FINISH_REQUEST = "idempotency/finish_request";
    ABANDON_REQUEST = "idempotency/abandon_request";
    DELETE_OLD_IDEMPOTENCY_KEYS = "idempotency/delete_old_keys";

    INSERT_FIRST_SIGNING_KEY = "signing_key/insert_first_key";
    LIST_SIGNING_KEYS = "signing_key/list_signing_keys";
    INSERT_SIGNING_KEY = "signing_key/insert_signing_key";
    LOCK_SIGNING_KEYS = "signing_key/lock_signing_keys";
    DELETE_OLDER_SIGNING_KEYS = "signing_key/delete_older_keys";
}
