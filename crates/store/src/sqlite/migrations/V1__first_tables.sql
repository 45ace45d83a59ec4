-- Times are text, UTC with milliseconds and a fixed width, so that text order is time order.
-- Tables with a view of the promised name over them: outbox (notification_outbox), send (notification_channel_send).

CREATE TABLE event_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id       TEXT NOT NULL UNIQUE
                   CHECK (typeof(event_id) = 'text' AND length(event_id) BETWEEN 1 AND 200 AND instr(event_id, char(0)) = 0),
    event_type     TEXT NOT NULL
                   CHECK (typeof(event_type) = 'text' AND length(event_type) BETWEEN 1 AND 200 AND instr(event_type, char(0)) = 0),
    aggregate_type TEXT NOT NULL
                   CHECK (typeof(aggregate_type) = 'text' AND length(aggregate_type) BETWEEN 1 AND 200
                          AND instr(aggregate_type, char(0)) = 0),
    aggregate_id   TEXT NOT NULL
                   CHECK (typeof(aggregate_id) = 'text' AND length(aggregate_id) BETWEEN 1 AND 200
                          AND instr(aggregate_id, char(0)) = 0),
    payload        TEXT NOT NULL DEFAULT '{}'
                   CHECK (typeof(payload) = 'text' AND length(CAST(payload AS BLOB)) <= 65536 AND instr(payload, char(0)) = 0
                          AND json_valid(payload) AND json_type(payload) = 'object'),
    priority       TEXT CHECK (priority IN ('HIGH', 'NORMAL', 'LOW')),
    status         TEXT NOT NULL DEFAULT 'PENDING'
                   CHECK (status IN ('PENDING', 'PUBLISHED', 'PROCESSED', 'FAILED', 'CANCELLED')),
    retry_count    INTEGER NOT NULL DEFAULT 0,
    last_error     TEXT,
    occurred_at    TEXT
                   CHECK (occurred_at IS NULL
                          OR occurred_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(occurred_at) IS NOT NULL),
    created_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    published_at   TEXT,
    processed_at   TEXT,
    -- The order of claims: 0 for HIGH, 1 for NORMAL, 2 for LOW; from the route where the event names no priority.
    lane           INTEGER NOT NULL DEFAULT 1,
    -- How far the fan-out of a large audience has come (JSON).
    fan_out_cursor TEXT
);
CREATE INDEX event_outbox_fresh ON event_outbox (lane, id) WHERE status = 'PENDING' AND fan_out_cursor IS NULL;
CREATE INDEX event_outbox_unfinished ON event_outbox (lane, id) WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL;
CREATE INDEX event_outbox_open ON event_outbox (id) WHERE status = 'PUBLISHED';
-- For searches.
CREATE INDEX event_outbox_type ON event_outbox (event_type, id);
CREATE INDEX event_outbox_failed ON event_outbox (id) WHERE status = 'FAILED';
CREATE INDEX event_outbox_cancelled ON event_outbox (id) WHERE status = 'CANCELLED';

CREATE TABLE event_cancel (
    event_id   TEXT PRIMARY KEY,
    reason     TEXT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What is known of an event id for ever, and what was decided, for as long as it is kept.
CREATE TABLE processed_event (
    event_id   TEXT PRIMARY KEY,
    body_hash  TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    recipients INTEGER NOT NULL DEFAULT 0,
    sends      INTEGER NOT NULL DEFAULT 0,
    counts     TEXT NOT NULL DEFAULT '{}',
    decisions  TEXT,
    instance   TEXT NOT NULL,
    created_at TEXT NOT NULL
);

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
    -- Only FAILED and CANCELLED are stored; notification_outbox derives the rest.
    status            TEXT,
    retry_count       INTEGER NOT NULL DEFAULT 0,
    last_error        TEXT,
    created_at        TEXT NOT NULL,
    PRIMARY KEY (notification_id, channel)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outbox_recipient ON outbox (event_id, recipient_type, recipient_id, channel);

-- Up to 1000 outbox rows of one queue that wait to be published. A lease that has passed may be taken over.
CREATE TABLE publish_chunk (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    queue       TEXT NOT NULL,
    lane        INTEGER NOT NULL,
    first_id    TEXT NOT NULL,
    last_id     TEXT NOT NULL,
    lease_until TEXT
);
CREATE INDEX publish_chunk_order ON publish_chunk (queue, lane, id);

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

-- One claim of up to a batch of sends. Its id is the fencing token: it rises with every claim.
CREATE TABLE send_claim (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    instance    TEXT NOT NULL,
    lease_until TEXT NOT NULL,
    -- The notifications whose sends it holds (JSON array).
    notifications TEXT NOT NULL
);
CREATE INDEX send_claim_expiry ON send_claim (lease_until);

CREATE TABLE send (
    notification_id   TEXT NOT NULL,
    channel           TEXT NOT NULL,
    recipient_address TEXT NOT NULL,
    status            TEXT NOT NULL
                      CHECK (status IN ('DUE', 'SENDING', 'SENT', 'FAILED', 'IN_DOUBT', 'CANCELLED')),
    attempt_count     INTEGER NOT NULL DEFAULT 0,
    lease             INTEGER,
    provider          TEXT,
    external_id       TEXT,
    receipt           TEXT,
    receipt_at        TEXT,
    last_error        TEXT,
    created_at        TEXT NOT NULL,
    sent_at           TEXT,
    PRIMARY KEY (notification_id, channel)
) WITHOUT ROWID;

-- Sends that wait for their time: retries, and first attempts for which nobody had room.
CREATE TABLE send_due (
    channel         TEXT NOT NULL,
    lane            INTEGER NOT NULL,
    due_at          TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    PRIMARY KEY (channel, lane, due_at, notification_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX send_due_send ON send_due (notification_id, channel);

CREATE TABLE send_attempt (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    at              TEXT NOT NULL,
    provider        TEXT,
    outcome         TEXT NOT NULL,
    error           TEXT,
    duration_ms     INTEGER NOT NULL
);
CREATE INDEX send_attempt_send ON send_attempt (notification_id, channel);

CREATE TABLE captured_message (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id   TEXT NOT NULL,
    user_type  TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    title      TEXT NOT NULL,
    body       TEXT NOT NULL,
    at         TEXT NOT NULL
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

CREATE TABLE entity_notification_settings (
    entity_type       TEXT NOT NULL,
    entity_id         TEXT NOT NULL DEFAULT '*',
    kind              TEXT NOT NULL DEFAULT '*',
    channel           TEXT NOT NULL,
    event_type        TEXT NOT NULL DEFAULT '*',
    enabled           INTEGER NOT NULL DEFAULT 1,
    max_recipients    INTEGER,
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
    priority          TEXT,
    PRIMARY KEY (event_type, channel)
) WITHOUT ROWID;

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
    PRIMARY KEY (event_type, channel, locale)
) WITHOUT ROWID;

-- Rises with every change of what engines keep in memory, whoever makes it.
CREATE TABLE rule_version (version INTEGER NOT NULL);
INSERT INTO rule_version VALUES (1);

CREATE TRIGGER event_audience_insert AFTER INSERT ON event_audience BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER event_audience_update AFTER UPDATE ON event_audience BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER event_audience_delete AFTER DELETE ON event_audience BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_insert AFTER INSERT ON event_type_channel_routing BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_update AFTER UPDATE ON event_type_channel_routing BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER routing_delete AFTER DELETE ON event_type_channel_routing BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_insert AFTER INSERT ON template BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_update AFTER UPDATE ON template BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER template_delete AFTER DELETE ON template BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER settings_insert AFTER INSERT ON entity_notification_settings WHEN NEW.entity_id = '*' BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER settings_update AFTER UPDATE ON entity_notification_settings WHEN '*' IN (OLD.entity_id, NEW.entity_id) BEGIN UPDATE rule_version SET version = version + 1; END;
CREATE TRIGGER settings_delete AFTER DELETE ON entity_notification_settings WHEN OLD.entity_id = '*' BEGIN UPDATE rule_version SET version = version + 1; END;

-- Sorts an event into its lane, so that a plain INSERT by a producer is claimed in the right order, too. Routes are those of
-- the event type, else those of '*'.
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

CREATE VIEW notification_outbox AS
SELECT o.notification_id || ':' || o.channel AS id, o.event_id, o.recipient_type, o.recipient_id, o.channel, o.title, o.body,
       o.recipient_address, o.priority, o.available_at,
       CASE
           WHEN o.status IS NOT NULL THEN o.status
           WHEN EXISTS (SELECT 1 FROM send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
               THEN 'DELIVERED'
           WHEN EXISTS (SELECT 1 FROM publish_chunk c WHERE c.id = o.chunk_id) THEN 'PENDING'
           ELSE 'PUBLISHED'
       END AS status,
       o.retry_count, o.last_error, o.created_at, o.notification_id, o.audience, o.entity_type, o.entity_id, o.shared_read
FROM outbox o;

CREATE VIEW notification_channel_send AS
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at
FROM send s
LEFT JOIN send_due d ON d.notification_id = s.notification_id AND d.channel = s.channel
LEFT JOIN send_claim c ON c.id = s.lease AND s.status = 'SENDING';
