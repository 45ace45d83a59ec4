-- All tables of Campanile, by noun: events, outbox, notifications, sends, people, rules, access, records,
-- instances.
--
-- Times are text, UTC with milliseconds and a fixed width, so that text order is time order.
-- Two promised names are views: notification_outbox over outbox, notification_channel_send over send.
-- A CHECK compares a status with each of its values, not with a list: for an IN with more than two values SQLite builds
-- a b-tree at each execution.


-- Events

CREATE TABLE event_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id       TEXT NOT NULL UNIQUE
                   CHECK (typeof(event_id) = 'text' AND length(event_id) BETWEEN 1 AND 200
                          AND instr(event_id, char(0)) = 0),
    event_type     TEXT NOT NULL
                   CHECK (typeof(event_type) = 'text' AND length(event_type) BETWEEN 1 AND 200
                          AND instr(event_type, char(0)) = 0),
    aggregate_type TEXT NOT NULL
                   CHECK (typeof(aggregate_type) = 'text' AND length(aggregate_type) BETWEEN 1 AND 200
                          AND instr(aggregate_type, char(0)) = 0),
    aggregate_id   TEXT NOT NULL
                   CHECK (typeof(aggregate_id) = 'text' AND length(aggregate_id) BETWEEN 1 AND 200
                          AND instr(aggregate_id, char(0)) = 0),
    payload        TEXT NOT NULL DEFAULT '{}'
                   CHECK (typeof(payload) = 'text' AND length(CAST(payload AS BLOB)) <= 65536
                          AND instr(payload, char(0)) = 0
                          AND json_valid(payload) AND json_type(payload) = 'object'),
    priority       TEXT CHECK (priority = 'HIGH' OR priority = 'NORMAL' OR priority = 'LOW'),
    status         TEXT NOT NULL DEFAULT 'PENDING'
                   CHECK (status = 'PENDING' OR status = 'PUBLISHED' OR status = 'PROCESSED' OR status = 'FAILED'
                          OR status = 'CANCELLED'),
    retry_count    INTEGER NOT NULL DEFAULT 0,
    last_error     TEXT,
    occurred_at    TEXT
                   CHECK (occurred_at IS NULL
                          OR occurred_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'
                             AND julianday(occurred_at) IS NOT NULL),
    created_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    published_at   TEXT,
    processed_at   TEXT,
    -- The order of claims: 0 for HIGH, 1 for NORMAL, 2 for LOW. The trigger event_outbox_lane sets it.
    lane           INTEGER NOT NULL DEFAULT 1,
    -- The progress of the fan-out through a large audience (JSON).
    fan_out_cursor TEXT
);
CREATE INDEX event_outbox_new ON event_outbox (lane, id) WHERE status = 'PENDING' AND fan_out_cursor IS NULL;
CREATE INDEX event_outbox_continuing ON event_outbox (lane, id) WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL;
CREATE INDEX event_outbox_open ON event_outbox (id) WHERE status = 'PUBLISHED';
-- For searches.
CREATE INDEX event_outbox_type ON event_outbox (event_type, id);
CREATE INDEX event_outbox_aggregate ON event_outbox (aggregate_type, aggregate_id, id);
CREATE INDEX event_outbox_failed ON event_outbox (id) WHERE status = 'FAILED';
CREATE INDEX event_outbox_cancelled ON event_outbox (id) WHERE status = 'CANCELLED';

-- Sets the lane of a new event, so that a plain INSERT by a producer is claimed in the right order, too.
-- An event without a priority takes that of its event type's routes, else that of the routes of '*'.
CREATE TRIGGER event_outbox_lane AFTER INSERT ON event_outbox
WHEN NEW.priority IN ('HIGH', 'LOW')
  OR NEW.priority IS NULL
     AND EXISTS (SELECT 1 FROM event_type_channel_routing
                 WHERE event_type IN (NEW.event_type, '*') AND priority IN ('HIGH', 'LOW'))
BEGIN
    UPDATE event_outbox
    SET lane = coalesce(
        CASE NEW.priority WHEN 'HIGH' THEN 0 WHEN 'LOW' THEN 2 END,
        (SELECT min(CASE priority WHEN 'HIGH' THEN 0 WHEN 'LOW' THEN 2 ELSE 1 END)
         FROM event_type_channel_routing WHERE event_type = NEW.event_type),
        (SELECT min(CASE priority WHEN 'HIGH' THEN 0 WHEN 'LOW' THEN 2 ELSE 1 END)
         FROM event_type_channel_routing WHERE event_type = '*'))
    WHERE id = NEW.id;
END;

CREATE TABLE event_cancel (
    event_id   TEXT PRIMARY KEY,
    reason     TEXT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- Every event id ever seen, with the hash of its body. The decisions expire; id and hash never do.
CREATE TABLE processed_event (
    event_id   TEXT PRIMARY KEY,
    body_hash  TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status = 'PROCESSING' OR status = 'SUCCESS' OR status = 'FAILED'),
    recipients INTEGER NOT NULL DEFAULT 0,
    sends      INTEGER NOT NULL DEFAULT 0,
    counts     TEXT NOT NULL DEFAULT '{}',
    decisions  TEXT,
    instance   TEXT NOT NULL,
    created_at TEXT NOT NULL
);


-- Outbox

CREATE TABLE outbox (
    notification_id   TEXT NOT NULL,
    channel           TEXT NOT NULL,
    event_id          TEXT NOT NULL,
    recipient_type    TEXT NOT NULL,
    recipient_id      TEXT NOT NULL,
    recipient_address TEXT NOT NULL,
    title             TEXT NOT NULL,
    body              TEXT NOT NULL,
    inbox_title       TEXT,
    inbox_body        TEXT,
    priority          TEXT NOT NULL,
    available_at      TEXT,
    audience          TEXT NOT NULL,
    entity_type       TEXT,
    entity_id         TEXT,
    shared_read       INTEGER NOT NULL,
    queue             TEXT NOT NULL,
    chunk_id          INTEGER,
    -- Only FAILED and CANCELLED are stored; the view notification_outbox derives the others.
    status            TEXT,
    retry_count       INTEGER NOT NULL DEFAULT 0,
    last_error        TEXT,
    created_at        TEXT NOT NULL,
    PRIMARY KEY (notification_id, channel)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outbox_recipient ON outbox (event_id, recipient_type, recipient_id, channel);

-- Up to 1000 outbox rows of one queue that wait to be published. An expired lease may be taken over.
CREATE TABLE publish_chunk (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    queue       TEXT NOT NULL,
    lane        INTEGER NOT NULL,
    first_id    TEXT NOT NULL,
    last_id     TEXT NOT NULL,
    lease_until TEXT
);
CREATE INDEX publish_chunk_order ON publish_chunk (queue, lane, id);


-- Notifications

CREATE TABLE event_notification (
    event_id     TEXT NOT NULL,
    entity_type  TEXT NOT NULL,
    entity_id    TEXT NOT NULL,
    shared_read  INTEGER NOT NULL,
    read_at      TEXT,
    read_by_type TEXT,
    read_by_id   TEXT,
    PRIMARY KEY (event_id, entity_type, entity_id)
) WITHOUT ROWID;

CREATE TABLE notification (
    id          TEXT PRIMARY KEY,
    event_id    TEXT NOT NULL,
    event_type  TEXT NOT NULL,
    user_type   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    entity_type TEXT,
    entity_id   TEXT,
    title       TEXT NOT NULL,
    body        TEXT NOT NULL,
    properties  TEXT NOT NULL,
    priority    TEXT NOT NULL,
    shared_read INTEGER NOT NULL,
    read_at     TEXT,
    archived_at TEXT,
    created_at  TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX notification_recipient ON notification (event_id, user_type, user_id);


-- Sends

CREATE TABLE send (
    notification_id   TEXT NOT NULL,
    channel           TEXT NOT NULL,
    recipient_address TEXT NOT NULL,
    status            TEXT NOT NULL
                      CHECK (status = 'DUE' OR status = 'SENDING' OR status = 'SENT' OR status = 'FAILED'
                             OR status = 'IN_DOUBT' OR status = 'CANCELLED'),
    attempt_count     INTEGER NOT NULL DEFAULT 0,
    -- The id of its send_claim.
    lease             INTEGER,
    provider          TEXT,
    external_id       TEXT,
    receipt           TEXT,
    receipt_at        TEXT,
    last_error        TEXT,
    -- When it was received.
    created_at        TEXT NOT NULL,
    sent_at           TEXT,
    -- Since when it is deferred, and how often it was. Null for nearly every send.
    deferred_since    TEXT,
    deferrals         INTEGER,
    -- Whether the provider had the whole message and did not answer.
    unanswered        INTEGER,
    -- Who did what, as numbers of `instance`, and when: for the trace. The settlement's time is sent_at, or that of
    -- the last send_attempt. A claim sets attempted_at, attempted_by and settled_by in advance, so that settling
    -- does not make the row longer. These times are milliseconds since 1970, which take a quarter of the space of text.
    published_at      INTEGER,
    attempted_at      INTEGER,
    published_by      INTEGER,
    received_by       INTEGER,
    attempted_by      INTEGER,
    settled_by        INTEGER,
    PRIMARY KEY (notification_id, channel)
) WITHOUT ROWID;

-- One claim of up to a batch of sends. Its id is the fencing token: it rises with every claim.
CREATE TABLE send_claim (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    instance      TEXT NOT NULL,
    lease_until   TEXT NOT NULL,
    -- The notifications whose sends it holds (JSON array).
    notifications TEXT NOT NULL
);
CREATE INDEX send_claim_expiry ON send_claim (lease_until);

-- Sends that wait for their time: retries, and first attempts for which there was no capacity.
CREATE TABLE send_due (
    channel         TEXT NOT NULL,
    lane            INTEGER NOT NULL,
    due_at          TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    PRIMARY KEY (channel, lane, due_at, notification_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX send_due_send ON send_due (notification_id, channel);

-- Which sends are in doubt, and since when. Triggers keep it, whoever changes the status.
CREATE TABLE send_in_doubt (
    since           TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    PRIMARY KEY (since, notification_id, channel)
) WITHOUT ROWID;
CREATE UNIQUE INDEX send_in_doubt_send ON send_in_doubt (notification_id, channel);
CREATE TRIGGER send_in_doubt_insert AFTER UPDATE OF status ON send
WHEN NEW.status = 'IN_DOUBT' AND OLD.status <> 'IN_DOUBT'
BEGIN
    INSERT OR IGNORE INTO send_in_doubt (since, notification_id, channel)
    VALUES (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), NEW.notification_id, NEW.channel);
END;
CREATE TRIGGER send_in_doubt_delete AFTER UPDATE OF status ON send
WHEN OLD.status = 'IN_DOUBT' AND NEW.status <> 'IN_DOUBT'
BEGIN
    DELETE FROM send_in_doubt WHERE notification_id = NEW.notification_id AND channel = NEW.channel;
END;

-- The outcome of each address of a send that has several, such as the tokens of a push.
-- Addresses without an outcome are in send.recipient_address.
CREATE TABLE send_address (
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    address         TEXT NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome = 'SENT' OR outcome = 'REJECTED' OR outcome = 'DEAD'),
    external_id     TEXT,
    error           TEXT,
    at              TEXT NOT NULL,
    PRIMARY KEY (notification_id, channel, address)
) WITHOUT ROWID;

-- Which send sends an event to an address that several recipients share, such as a webhook.
-- The address may be a secret, so only its SHA-256 is here.
CREATE TABLE send_once (
    event_id        TEXT NOT NULL,
    channel         TEXT NOT NULL,
    address_hash    TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    at              TEXT NOT NULL,
    -- The send_claim under which it may have been sent.
    lease           INTEGER,
    PRIMARY KEY (event_id, channel, address_hash)
) WITHOUT ROWID;

CREATE VIEW notification_channel_send AS
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at, s.deferred_since, coalesce(s.deferrals, 0) AS deferrals
FROM send s
LEFT JOIN send_due d ON d.notification_id = s.notification_id AND d.channel = s.channel
LEFT JOIN send_claim c ON c.id = s.lease AND s.status = 'SENDING';

-- Stands here and not beside outbox, because it reads send.
CREATE VIEW notification_outbox AS
SELECT o.notification_id || ':' || o.channel AS id, o.event_id, o.recipient_type, o.recipient_id, o.channel,
       o.title, o.body, o.recipient_address, o.priority, o.available_at,
       CASE
           WHEN o.status IS NOT NULL THEN o.status
           WHEN EXISTS (SELECT 1 FROM send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
               THEN 'DELIVERED'
           WHEN EXISTS (SELECT 1 FROM publish_chunk c WHERE c.id = o.chunk_id) THEN 'PENDING'
           ELSE 'PUBLISHED'
       END AS status,
       o.retry_count, o.last_error, o.created_at, o.notification_id, o.audience, o.entity_type, o.entity_id,
       o.shared_read
FROM outbox o;

-- Every attempt that was not a first success.
CREATE TABLE send_attempt (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    at              TEXT NOT NULL,
    provider        TEXT,
    outcome         TEXT NOT NULL,
    error           TEXT,
    duration_ms     INTEGER NOT NULL,
    -- Whose attempt it was: a number of `instance`.
    instance        INTEGER
);
CREATE INDEX send_attempt_send ON send_attempt (notification_id, channel);


-- People

CREATE TABLE entity (
    entity_type TEXT NOT NULL,
    entity_id   TEXT NOT NULL,
    kind        TEXT,
    name        TEXT,
    PRIMARY KEY (entity_type, entity_id)
) WITHOUT ROWID;

CREATE TABLE recipient (
    user_type     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    entity_type   TEXT,
    entity_id     TEXT,
    role          TEXT,
    name          TEXT,
    email         TEXT,
    phone         TEXT,
    push_tokens   TEXT NOT NULL DEFAULT '[]',
    slack_webhook TEXT,
    -- Addresses of channels without a column of their own: {"CHANNEL": "address"}, or an array of addresses.
    addresses     TEXT NOT NULL DEFAULT '{}',
    locale        TEXT,
    time_zone     TEXT,
    active        INTEGER NOT NULL DEFAULT 1,
    -- The order in which a fan-out walks: entity, then rank, then user.
    entity_key    TEXT GENERATED ALWAYS AS (coalesce(entity_id, '')) VIRTUAL,
    rank          INTEGER GENERATED ALWAYS AS (coalesce(role, '') <> 'MANAGER') VIRTUAL,
    PRIMARY KEY (user_type, user_id)
) WITHOUT ROWID;
CREATE INDEX recipient_entity ON recipient (entity_id, entity_type);
CREATE INDEX recipient_walk ON recipient (user_type, entity_key, rank, user_id) WHERE active = 1;

CREATE TABLE dead_address (
    channel TEXT NOT NULL,
    address TEXT NOT NULL,
    reason  TEXT NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (channel, address)
) WITHOUT ROWID;

CREATE TABLE user_notification_preferences (
    user_type         TEXT NOT NULL,
    user_id           TEXT NOT NULL,
    channel           TEXT NOT NULL,
    event_type        TEXT NOT NULL DEFAULT '*',
    enabled           INTEGER NOT NULL DEFAULT 1,
    min_priority      TEXT,
    quiet_hours_start TEXT,
    quiet_hours_end   TEXT,
    quiet_hours_mode  TEXT NOT NULL DEFAULT 'SUPPRESS',
    PRIMARY KEY (user_type, user_id, channel, event_type)
) WITHOUT ROWID;


-- Rules

CREATE TABLE entity_notification_settings (
    entity_type       TEXT NOT NULL,
    entity_id         TEXT NOT NULL DEFAULT '*',
    kind              TEXT NOT NULL DEFAULT '*',
    channel           TEXT NOT NULL,
    event_type        TEXT NOT NULL DEFAULT '*',
    enabled           INTEGER NOT NULL DEFAULT 1,
    max_recipients    INTEGER,
    -- Below this priority the group does not use the channel.
    min_priority      TEXT,
    roles             TEXT,
    quiet_hours_start TEXT,
    quiet_hours_end   TEXT,
    quiet_hours_mode  TEXT NOT NULL DEFAULT 'SUPPRESS',
    PRIMARY KEY (entity_type, entity_id, kind, channel, event_type)
) WITHOUT ROWID;
CREATE INDEX entity_notification_settings_defaults ON entity_notification_settings (entity_type) WHERE entity_id = '*';

CREATE TABLE event_type_channel_routing (
    event_type        TEXT NOT NULL DEFAULT '*',
    channel           TEXT NOT NULL,
    mandatory         INTEGER NOT NULL DEFAULT 0,
    delivery_strategy TEXT NOT NULL DEFAULT 'IMMEDIATE',
    delay_seconds     INTEGER,
    window_seconds    INTEGER,
    max_items         INTEGER,
    -- Below this priority the event type does not use the channel.
    min_priority      TEXT,
    priority          TEXT,
    PRIMARY KEY (event_type, channel)
) WITHOUT ROWID;
-- Stands before the triggers, so that the first rule_version is 1.
INSERT INTO event_type_channel_routing (event_type, channel, mandatory)
VALUES ('*', 'WEBSOCKET', 1), ('*', 'EMAIL', 0), ('*', 'PUSH', 0), ('*', 'SMS', 0);

CREATE TABLE event_audience (
    event_type     TEXT NOT NULL,
    name           TEXT NOT NULL,
    recipient_type TEXT NOT NULL,
    entity_path    TEXT,
    roles          TEXT,
    scope          TEXT NOT NULL DEFAULT 'PERSONAL',
    shared_read    INTEGER NOT NULL DEFAULT 0,
    "when"         TEXT,
    PRIMARY KEY (event_type, name)
) WITHOUT ROWID;

CREATE TABLE template (
    event_type TEXT NOT NULL DEFAULT '*',
    channel    TEXT NOT NULL DEFAULT '*',
    locale     TEXT NOT NULL DEFAULT '*',
    title      TEXT NOT NULL,
    body       TEXT NOT NULL DEFAULT '',
    html       TEXT,
    -- Where a click on a notification leads: a template like the title, rendered when the message is sent.
    url        TEXT,
    PRIMARY KEY (event_type, channel, locale)
) WITHOUT ROWID;

-- Rises with every change of the rules that engines keep in memory, whoever makes it.
CREATE TABLE rule_version (version INTEGER NOT NULL);
INSERT INTO rule_version (version) VALUES (1);

CREATE TRIGGER event_audience_insert AFTER INSERT ON event_audience
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER event_audience_update AFTER UPDATE ON event_audience
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER event_audience_delete AFTER DELETE ON event_audience
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_insert AFTER INSERT ON event_type_channel_routing
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_update AFTER UPDATE ON event_type_channel_routing
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_delete AFTER DELETE ON event_type_channel_routing
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_insert AFTER INSERT ON template
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_update AFTER UPDATE ON template
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_delete AFTER DELETE ON template
BEGIN UPDATE rule_version SET version = version + 1; END;
-- An entity's own settings are read with its event; only the defaults are kept in memory.
CREATE TRIGGER settings_insert AFTER INSERT ON entity_notification_settings WHEN NEW.entity_id = '*'
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER settings_update AFTER UPDATE ON entity_notification_settings WHEN '*' IN (OLD.entity_id, NEW.entity_id)
BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER settings_delete AFTER DELETE ON entity_notification_settings WHEN OLD.entity_id = '*'
BEGIN UPDATE rule_version SET version = version + 1; END;


-- Access

-- Keys of services. A key is cpk_<id>_<secret>.
CREATE TABLE api_key (
    -- The order of creation, for listings.
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    -- The beginning of the key, by which a person recognises it.
    prefix       TEXT NOT NULL,
    -- The SHA-256 of the secret, in hexadecimal digits.
    hash         TEXT NOT NULL,
    -- JSON array of names.
    scopes       TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    -- Written at most once a minute.
    last_used_at TEXT,
    expires_at   TEXT,
    revoked_at   TEXT
);

-- The keys that sign tickets and other tokens. The newest signs, and each verifies.
CREATE TABLE signing_key (
    id         INTEGER PRIMARY KEY,
    secret     TEXT NOT NULL,
    created_at TEXT NOT NULL
);

-- Who changed what over HTTP. Secrets are left out.
CREATE TABLE audit (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          TEXT NOT NULL,
    actor_kind  TEXT NOT NULL,
    -- Empty for the admin key.
    actor_id    TEXT NOT NULL,
    actor_name  TEXT NOT NULL,
    action      TEXT NOT NULL,
    object_type TEXT NOT NULL,
    object_id   TEXT NOT NULL,
    before      TEXT,
    after       TEXT
);
CREATE INDEX audit_type ON audit (object_type, id);
CREATE INDEX audit_object ON audit (object_type, object_id, id);
CREATE INDEX audit_actor ON audit (actor_id, id);

-- What was answered to requests with an Idempotency-Key, for a day.
CREATE TABLE idempotency_key (
    caller       TEXT NOT NULL,
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    -- Rises with each request that takes the key, so that a late answer of an earlier one is not stored.
    fence        INTEGER NOT NULL,
    created_at   TEXT NOT NULL,
    -- Until when a request without an answer holds the key.
    lease_until  TEXT NOT NULL,
    status       INTEGER,
    content_type TEXT,
    body         TEXT,
    PRIMARY KEY (caller, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_key_age ON idempotency_key (created_at);


-- Records

-- What the provider `capture` "sent".
CREATE TABLE captured_message (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id  TEXT NOT NULL,
    user_type TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    channel   TEXT NOT NULL,
    address   TEXT NOT NULL,
    title     TEXT NOT NULL,
    body      TEXT NOT NULL,
    -- Of an e-mail that has HTML.
    html      TEXT,
    at        TEXT NOT NULL
);
CREATE INDEX captured_message_event ON captured_message (event_id, id);

CREATE TABLE dead_letter (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    stage          TEXT NOT NULL,
    event_id       TEXT,
    recipient_type TEXT,
    recipient_id   TEXT,
    channel        TEXT,
    provider       TEXT,
    reason         TEXT NOT NULL,
    error          TEXT NOT NULL,
    message        TEXT,
    created_at     TEXT NOT NULL,
    replayed_at    TEXT
);
CREATE INDEX dead_letter_event ON dead_letter (event_id, id);


-- Instances

-- The number of each instance's name. Other rows hold the number, because names are long.
CREATE TABLE instance (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    -- Of its last start.
    started_at TEXT NOT NULL,
    -- When it last tried whether it can write, for /readyz. No index holds it.
    written_at TEXT
);

-- Work that only one holder may do at a time.
CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    lease_until TEXT NOT NULL
) WITHOUT ROWID;

-- Rows that arrived before this moment are deleted. It moves with the uptime of instances, so that a clock that jumps
-- ahead deletes nothing. One row, which is missing until there is something to keep.
CREATE TABLE retain_horizon (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    horizon TEXT NOT NULL,
    -- Rises with each move, so that only one of several instances moves it.
    version INTEGER NOT NULL
);
