-- All tables of Campanile, by noun: events, outbox, notifications, sends, people, rules, records, instances.
-- The program makes the schema `campanile` itself before it runs this migration.
--
-- Text that is compared has the collation "C": bytewise.
-- Two promised names are views: notification_outbox over outbox, notification_channel_send over send.
-- Queue-like tables are vacuumed often: they stay small, because their rows are soon deleted.

-- The clock of the database. Leases and due times are compared with it. Inlined wherever it is called.
CREATE FUNCTION campanile.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT pg_catalog.now()';


-- Events

CREATE TABLE campanile.event_outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       text COLLATE "C" NOT NULL UNIQUE CHECK (length(event_id) BETWEEN 1 AND 200),
    event_type     text COLLATE "C" NOT NULL CHECK (length(event_type) BETWEEN 1 AND 200),
    aggregate_type text COLLATE "C" NOT NULL CHECK (length(aggregate_type) BETWEEN 1 AND 200),
    aggregate_id   text COLLATE "C" NOT NULL CHECK (length(aggregate_id) BETWEEN 1 AND 200),
    payload        json NOT NULL DEFAULT '{}'
                   CHECK (octet_length(payload::text) <= 65536 AND json_typeof(payload) = 'object'),
    priority       text COLLATE "C" CHECK (priority IN ('HIGH', 'NORMAL', 'LOW')),
    status         text COLLATE "C" NOT NULL DEFAULT 'PENDING'
                   CHECK (status IN ('PENDING', 'PUBLISHED', 'PROCESSED', 'FAILED', 'CANCELLED')),
    retry_count    integer NOT NULL DEFAULT 0,
    last_error     text,
    occurred_at    timestamptz
                   CHECK (occurred_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    created_at     timestamptz NOT NULL DEFAULT campanile.now(),
    published_at   timestamptz,
    processed_at   timestamptz,
    -- The order of claims: 0 for HIGH, 1 for NORMAL, 2 for LOW. The trigger sort_into_lane sets it.
    lane           smallint NOT NULL DEFAULT 1,
    -- The progress of the fan-out through a large audience (JSON).
    fan_out_cursor text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX event_outbox_new ON campanile.event_outbox (lane, id)
    WHERE status = 'PENDING' AND fan_out_cursor IS NULL;
CREATE INDEX event_outbox_continuing ON campanile.event_outbox (lane, id)
    WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL;
CREATE INDEX event_outbox_open ON campanile.event_outbox (id) WHERE status = 'PUBLISHED';
-- For searches.
CREATE INDEX event_outbox_failed ON campanile.event_outbox (id) WHERE status = 'FAILED';
CREATE INDEX event_outbox_cancelled ON campanile.event_outbox (id) WHERE status = 'CANCELLED';

-- Sets the lane of a new event, so that a plain INSERT by a producer is claimed in the right order, too.
-- An event without a priority takes that of its event type's routes, else that of the routes of '*'.
-- SECURITY DEFINER: a producer need not be allowed to read the routes.
CREATE FUNCTION campanile.sort_into_lane() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
BEGIN
    NEW.lane := coalesce(
        CASE NEW.priority WHEN 'HIGH' THEN 0 WHEN 'NORMAL' THEN 1 WHEN 'LOW' THEN 2 END,
        (SELECT min(CASE priority WHEN 'HIGH' THEN 0 WHEN 'LOW' THEN 2 ELSE 1 END)
         FROM campanile.event_type_channel_routing WHERE event_type = NEW.event_type),
        (SELECT min(CASE priority WHEN 'HIGH' THEN 0 WHEN 'LOW' THEN 2 ELSE 1 END)
         FROM campanile.event_type_channel_routing WHERE event_type = '*'),
        1);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION campanile.sort_into_lane() FROM PUBLIC;
CREATE TRIGGER sort_into_lane BEFORE INSERT ON campanile.event_outbox
    FOR EACH ROW EXECUTE FUNCTION campanile.sort_into_lane();

-- What events are searched by. Each update of an event writes all indexes of its table again, so these are kept apart
-- (decision 0041). The trigger index_events writes a row for each event, also for a plain INSERT by a producer.
CREATE TABLE campanile.event_search (
    id             bigint NOT NULL,
    event_type     text COLLATE "C" NOT NULL,
    aggregate_type text COLLATE "C" NOT NULL,
    aggregate_id   text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX event_search_type ON campanile.event_search (event_type, id);
CREATE INDEX event_search_aggregate ON campanile.event_search (aggregate_type, aggregate_id, id);

-- SECURITY DEFINER: a producer need not be allowed to write the table.
CREATE FUNCTION campanile.index_events() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
BEGIN
    INSERT INTO campanile.event_search (id, event_type, aggregate_type, aggregate_id)
    SELECT id, event_type, aggregate_type, aggregate_id FROM new_events;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION campanile.index_events() FROM PUBLIC;
CREATE TRIGGER index_events AFTER INSERT ON campanile.event_outbox REFERENCING NEW TABLE AS new_events
    FOR EACH STATEMENT EXECUTE FUNCTION campanile.index_events();

-- For producers: writes an event in the caller's transaction, and notifies the engine when that commits.
-- Answers whether the event is new. A transaction that emits many events notifies once.
--
-- NOTIFY makes transactions commit one after the other, over the whole server. So nobody notifies while an instance
-- polls every few milliseconds: it holds the lock `campanile.suppress_notify` meanwhile. The function tests that lock
-- by taking it, and gives it back at once. So the answer depends neither on the length of the transaction nor on other
-- producers that test it.
CREATE FUNCTION campanile.emit(event_id text, event_type text, aggregate_type text, aggregate_id text, payload jsonb,
                               priority text DEFAULT NULL, occurred_at timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    suppress_lock CONSTANT bigint := hashtextextended('campanile.suppress_notify', 0);
BEGIN
    -- An id whose event is long gone is still known.
    PERFORM 1 FROM campanile.processed_event p WHERE p.event_id = emit.event_id;
    IF FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority,
                                        occurred_at)
    VALUES (emit.event_id, emit.event_type, emit.aggregate_type, emit.aggregate_id, emit.payload::json, emit.priority,
            emit.occurred_at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF pg_try_advisory_lock_shared(suppress_lock) THEN
        PERFORM pg_advisory_unlock_shared(suppress_lock);
        PERFORM pg_notify('campanile', '');
    END IF;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION campanile.emit(text, text, text, text, jsonb, text, timestamptz) FROM PUBLIC;

CREATE TABLE campanile.event_cancel (
    event_id   text COLLATE "C" PRIMARY KEY CHECK (length(event_id) BETWEEN 1 AND 200),
    reason     text,
    created_at timestamptz NOT NULL DEFAULT campanile.now()
);

-- Every event id ever seen, with the hash of its body. The decisions expire; id and hash never do.
CREATE TABLE campanile.processed_event (
    event_id   text COLLATE "C" PRIMARY KEY,
    body_hash  text COLLATE "C" NOT NULL,
    status     text COLLATE "C" NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    recipients bigint NOT NULL DEFAULT 0,
    sends      bigint NOT NULL DEFAULT 0,
    counts     json NOT NULL DEFAULT '{}',
    decisions  json,
    instance   text NOT NULL,
    created_at timestamptz NOT NULL
);


-- Outbox

CREATE TABLE campanile.outbox (
    notification_id   uuid NOT NULL,
    channel           text COLLATE "C" NOT NULL,
    event_id          text COLLATE "C" NOT NULL,
    recipient_type    text COLLATE "C" NOT NULL,
    recipient_id      text COLLATE "C" NOT NULL,
    recipient_address text NOT NULL,
    title             text NOT NULL,
    body              text NOT NULL,
    inbox_title       text,
    inbox_body        text,
    priority          text COLLATE "C" NOT NULL,
    available_at      timestamptz,
    audience          text NOT NULL,
    entity_type       text COLLATE "C",
    entity_id         text COLLATE "C",
    shared_read       boolean NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    chunk_id          bigint,
    -- Only FAILED and CANCELLED are stored; the view notification_outbox derives the others.
    status            text COLLATE "C",
    retry_count       integer NOT NULL DEFAULT 0,
    last_error        text,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (notification_id, channel)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX outbox_recipient ON campanile.outbox (event_id, recipient_type, recipient_id, channel);

-- Up to 1000 outbox rows of one queue that wait to be published. Another instance may take over an expired lease.
CREATE TABLE campanile.publish_chunk (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,
    lane        smallint NOT NULL,
    first_id    uuid NOT NULL,
    last_id     uuid NOT NULL,
    lease_until timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX publish_chunk_order ON campanile.publish_chunk (queue, lane, id);


-- Notifications

CREATE TABLE campanile.event_notification (
    event_id     text COLLATE "C" NOT NULL,
    entity_type  text COLLATE "C" NOT NULL,
    entity_id    text COLLATE "C" NOT NULL,
    shared_read  boolean NOT NULL,
    read_at      timestamptz,
    read_by_type text COLLATE "C",
    read_by_id   text COLLATE "C",
    PRIMARY KEY (event_id, entity_type, entity_id)
);

CREATE TABLE campanile.notification (
    id          uuid PRIMARY KEY,
    event_id    text COLLATE "C" NOT NULL,
    event_type  text COLLATE "C" NOT NULL,
    user_type   text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    entity_type text COLLATE "C",
    entity_id   text COLLATE "C",
    title       text NOT NULL,
    body        text NOT NULL,
    properties  json NOT NULL,
    priority    text COLLATE "C" NOT NULL,
    shared_read boolean NOT NULL,
    read_at     timestamptz,
    archived_at timestamptz,
    created_at  timestamptz NOT NULL
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX notification_recipient ON campanile.notification (event_id, user_type, user_id);


-- Sends

-- Settling is a HOT update: no index holds what an outcome changes, and each page has room for the new version.
CREATE TABLE campanile.send (
    notification_id   uuid NOT NULL,
    channel           text COLLATE "C" NOT NULL,
    recipient_address text NOT NULL,
    status            text COLLATE "C" NOT NULL
                      CHECK (status IN ('DUE', 'SENDING', 'SENT', 'FAILED', 'IN_DOUBT', 'CANCELLED')),
    attempt_count     integer NOT NULL DEFAULT 0,
    -- The id of its send_claim.
    lease             bigint,
    provider          text,
    external_id       text,
    receipt           text,
    receipt_at        timestamptz,
    last_error        text,
    -- When it was received.
    created_at        timestamptz NOT NULL,
    sent_at           timestamptz,
    -- Since when it is deferred, and how often it was. Null for nearly every send, which takes no space.
    deferred_since    timestamptz,
    deferrals         integer,
    -- Whether the provider had the whole message and did not answer.
    unanswered        boolean,
    -- Who did what, as numbers of `instance`, and when: for the trace. The settlement's time is sent_at, or that of
    -- the last send_attempt. A claim sets attempted_at, attempted_by and settled_by in advance, so that settling
    -- does not make the row longer.
    published_at      timestamptz,
    attempted_at      timestamptz,
    published_by      integer,
    received_by       integer,
    attempted_by      integer,
    settled_by        integer,
    PRIMARY KEY (notification_id, channel)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);

-- One claim of up to a batch of sends. Its id is the fencing token: it rises with every claim.
CREATE TABLE campanile.send_claim (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance      text NOT NULL,
    lease_until   timestamptz NOT NULL,
    -- The notifications whose sends it holds.
    notifications uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX send_claim_expiry ON campanile.send_claim (lease_until);

-- Sends that wait for their time: retries, and first attempts for which no instance had capacity.
CREATE TABLE campanile.send_due (
    channel         text COLLATE "C" NOT NULL,
    lane            smallint NOT NULL,
    due_at          timestamptz NOT NULL,
    notification_id uuid NOT NULL,
    PRIMARY KEY (channel, lane, due_at, notification_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX send_due_send ON campanile.send_due (notification_id, channel);

-- Which sends are in doubt, and since when. A trigger keeps it, whoever changes the status.
CREATE TABLE campanile.send_in_doubt (
    since           timestamptz NOT NULL,
    notification_id uuid NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    PRIMARY KEY (since, notification_id, channel)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX send_in_doubt_send ON campanile.send_in_doubt (notification_id, channel);

-- SECURITY DEFINER: whoever may change a send need not be allowed to write send_in_doubt.
CREATE FUNCTION campanile.track_send_in_doubt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = '' AS $$
BEGIN
    IF NEW.status = 'IN_DOUBT' THEN
        INSERT INTO campanile.send_in_doubt (since, notification_id, channel)
        VALUES (campanile.now(), NEW.notification_id, NEW.channel)
        ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM campanile.send_in_doubt WHERE notification_id = NEW.notification_id AND channel = NEW.channel;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION campanile.track_send_in_doubt() FROM PUBLIC;
-- A send that never was in doubt costs one comparison.
CREATE TRIGGER track_send_in_doubt AFTER UPDATE OF status ON campanile.send
    FOR EACH ROW WHEN ((OLD.status = 'IN_DOUBT') <> (NEW.status = 'IN_DOUBT'))
    EXECUTE FUNCTION campanile.track_send_in_doubt();

-- The outcome of each address of a send that has several, such as the tokens of a push.
-- Addresses without an outcome are in send.recipient_address.
CREATE TABLE campanile.send_address (
    notification_id uuid NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    address         text COLLATE "C" NOT NULL,
    outcome         text COLLATE "C" NOT NULL CHECK (outcome IN ('SENT', 'REJECTED', 'DEAD')),
    external_id     text,
    error           text,
    at              timestamptz NOT NULL,
    PRIMARY KEY (notification_id, channel, address)
);

-- Which send sends an event to an address that several recipients share, such as a webhook.
-- The address may be a secret, so only its SHA-256 is here.
CREATE TABLE campanile.send_once (
    event_id        text COLLATE "C" NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    address_hash    text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    at              timestamptz NOT NULL,
    -- The send_claim under which it may have been sent.
    lease           bigint,
    PRIMARY KEY (event_id, channel, address_hash)
);

CREATE VIEW campanile.notification_channel_send AS
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at, s.deferred_since, coalesce(s.deferrals, 0) AS deferrals
FROM campanile.send s
LEFT JOIN campanile.send_due d ON d.notification_id = s.notification_id AND d.channel = s.channel
LEFT JOIN campanile.send_claim c ON c.id = s.lease AND s.status = 'SENDING';

-- Stands here and not beside outbox, because it reads send.
CREATE VIEW campanile.notification_outbox AS
SELECT o.notification_id || ':' || o.channel AS id, o.event_id, o.recipient_type, o.recipient_id, o.channel,
       o.title, o.body, o.recipient_address, o.priority, o.available_at,
       CASE
           WHEN o.status IS NOT NULL THEN o.status
           WHEN EXISTS (SELECT FROM campanile.send s
                        WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
               THEN 'DELIVERED'
           WHEN EXISTS (SELECT FROM campanile.publish_chunk c WHERE c.id = o.chunk_id) THEN 'PENDING'
           ELSE 'PUBLISHED'
       END AS status,
       o.retry_count, o.last_error, o.created_at, o.notification_id, o.audience, o.entity_type, o.entity_id,
       o.shared_read
FROM campanile.outbox o;

-- Every attempt that was not a first success.
CREATE TABLE campanile.send_attempt (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification_id uuid NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    at              timestamptz NOT NULL,
    provider        text,
    outcome         text NOT NULL,
    error           text,
    duration_ms     bigint NOT NULL,
    -- Whose attempt it was: a number of `instance`.
    instance        integer
);
CREATE INDEX send_attempt_send ON campanile.send_attempt (notification_id, channel);


-- People

CREATE TABLE campanile.entity (
    entity_type text COLLATE "C" NOT NULL,
    entity_id   text COLLATE "C" NOT NULL,
    kind        text COLLATE "C",
    name        text,
    PRIMARY KEY (entity_type, entity_id)
);

-- May be dropped and replaced by a view with the same columns over the business's own tables.
CREATE TABLE campanile.recipient (
    user_type     text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    entity_type   text COLLATE "C",
    entity_id     text COLLATE "C",
    role          text COLLATE "C",
    name          text,
    email         text,
    phone         text,
    push_tokens   json NOT NULL DEFAULT '[]',
    slack_webhook text,
    -- Addresses of channels without a column of their own: {"CHANNEL": "address"}, or an array of addresses.
    addresses     json NOT NULL DEFAULT '{}',
    locale        text,
    time_zone     text,
    active        boolean NOT NULL DEFAULT true,
    PRIMARY KEY (user_type, user_id)
);
CREATE INDEX recipient_entity ON campanile.recipient (entity_id, entity_type);
-- The order in which a fan-out walks: entity, then rank, then user.
CREATE INDEX recipient_walk ON campanile.recipient
    (user_type, (coalesce(entity_id, '')), (CASE WHEN role = 'MANAGER' THEN 0 ELSE 1 END), user_id) WHERE active;

CREATE TABLE campanile.dead_address (
    channel text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    reason  text NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (channel, address)
);

CREATE TABLE campanile.user_notification_preferences (
    user_type         text COLLATE "C" NOT NULL,
    user_id           text COLLATE "C" NOT NULL,
    channel           text COLLATE "C" NOT NULL,
    event_type        text COLLATE "C" NOT NULL DEFAULT '*',
    enabled           boolean NOT NULL DEFAULT true,
    min_priority      text,
    quiet_hours_start text,
    quiet_hours_end   text,
    quiet_hours_mode  text NOT NULL DEFAULT 'SUPPRESS',
    PRIMARY KEY (user_type, user_id, channel, event_type)
);


-- Rules

CREATE TABLE campanile.entity_notification_settings (
    entity_type       text COLLATE "C" NOT NULL,
    entity_id         text COLLATE "C" NOT NULL DEFAULT '*',
    kind              text COLLATE "C" NOT NULL DEFAULT '*',
    channel           text COLLATE "C" NOT NULL,
    event_type        text COLLATE "C" NOT NULL DEFAULT '*',
    enabled           boolean NOT NULL DEFAULT true,
    max_recipients    bigint,
    -- Below this priority the group does not use the channel.
    min_priority      text COLLATE "C",
    roles             json,
    quiet_hours_start text,
    quiet_hours_end   text,
    quiet_hours_mode  text NOT NULL DEFAULT 'SUPPRESS',
    PRIMARY KEY (entity_type, entity_id, kind, channel, event_type)
);
CREATE INDEX entity_notification_settings_defaults ON campanile.entity_notification_settings (entity_type)
    WHERE entity_id = '*';

CREATE TABLE campanile.event_type_channel_routing (
    event_type        text COLLATE "C" NOT NULL DEFAULT '*',
    channel           text COLLATE "C" NOT NULL,
    mandatory         boolean NOT NULL DEFAULT false,
    delivery_strategy text NOT NULL DEFAULT 'IMMEDIATE',
    delay_seconds     bigint,
    window_seconds    bigint,
    max_items         bigint,
    -- Below this priority the event type does not use the channel.
    min_priority      text COLLATE "C",
    priority          text COLLATE "C",
    PRIMARY KEY (event_type, channel)
);
-- Stands before the triggers, so that the first rule_version is 1.
INSERT INTO campanile.event_type_channel_routing (event_type, channel, mandatory)
VALUES ('*', 'WEBSOCKET', true), ('*', 'EMAIL', false), ('*', 'PUSH', false), ('*', 'SMS', false);

CREATE TABLE campanile.event_audience (
    event_type     text COLLATE "C" NOT NULL,
    name           text COLLATE "C" NOT NULL,
    recipient_type text NOT NULL,
    entity_path    text,
    roles          json,
    scope          text NOT NULL DEFAULT 'PERSONAL',
    shared_read    boolean NOT NULL DEFAULT false,
    "when"         text,
    PRIMARY KEY (event_type, name)
);

CREATE TABLE campanile.template (
    event_type text COLLATE "C" NOT NULL DEFAULT '*',
    channel    text COLLATE "C" NOT NULL DEFAULT '*',
    locale     text COLLATE "C" NOT NULL DEFAULT '*',
    title      text NOT NULL,
    body       text NOT NULL DEFAULT '',
    html       text,
    -- Where a click on a notification leads: a template like the title, rendered when the message is sent.
    url        text,
    PRIMARY KEY (event_type, channel, locale)
);

-- Rises with every change of the rules that engines keep in memory, whoever makes it.
CREATE TABLE campanile.rule_version (version bigint NOT NULL) WITH (fillfactor = 10);
INSERT INTO campanile.rule_version (version) VALUES (1);

-- SECURITY DEFINER: whoever may change a rule may not write the version itself.
CREATE FUNCTION campanile.rules_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
BEGIN
    UPDATE campanile.rule_version SET version = version + 1;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION campanile.rules_changed() FROM PUBLIC;
CREATE TRIGGER rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON campanile.event_audience
    FOR EACH STATEMENT EXECUTE FUNCTION campanile.rules_changed();
CREATE TRIGGER rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON campanile.event_type_channel_routing
    FOR EACH STATEMENT EXECUTE FUNCTION campanile.rules_changed();
CREATE TRIGGER rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON campanile.template
    FOR EACH STATEMENT EXECUTE FUNCTION campanile.rules_changed();
-- An entity's own settings are read with its event; only the defaults are kept in memory.
CREATE TRIGGER rules_changed_by_insert AFTER INSERT ON campanile.entity_notification_settings
    FOR EACH ROW WHEN (NEW.entity_id = '*') EXECUTE FUNCTION campanile.rules_changed();
CREATE TRIGGER rules_changed_by_update AFTER UPDATE ON campanile.entity_notification_settings
    FOR EACH ROW WHEN ('*' IN (OLD.entity_id, NEW.entity_id)) EXECUTE FUNCTION campanile.rules_changed();
CREATE TRIGGER rules_changed_by_delete AFTER DELETE ON campanile.entity_notification_settings
    FOR EACH ROW WHEN (OLD.entity_id = '*') EXECUTE FUNCTION campanile.rules_changed();
CREATE TRIGGER rules_changed_by_truncate AFTER TRUNCATE ON campanile.entity_notification_settings
    FOR EACH STATEMENT EXECUTE FUNCTION campanile.rules_changed();


-- Access

-- Keys of services. A key is cpk_<id>_<secret>.
CREATE TABLE campanile.api_key (
    -- The order of creation, for listings.
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text COLLATE "C" NOT NULL UNIQUE,
    name         text NOT NULL,
    -- The beginning of the key, by which a person recognises it.
    prefix       text NOT NULL,
    -- The SHA-256 of the secret, in hexadecimal digits.
    hash         text NOT NULL,
    -- Array of names.
    scopes       json NOT NULL,
    created_at   timestamptz NOT NULL,
    -- Written at most once a minute.
    last_used_at timestamptz,
    expires_at   timestamptz,
    revoked_at   timestamptz
);

-- The keys that sign tickets and other tokens. The newest signs, and each verifies.
CREATE TABLE campanile.signing_key (
    id         bigint PRIMARY KEY,
    secret     text NOT NULL,
    created_at timestamptz NOT NULL
);

-- Who changed what over HTTP. Secrets are left out.
CREATE TABLE campanile.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    actor_kind  text COLLATE "C" NOT NULL,
    -- Empty for the admin key.
    actor_id    text COLLATE "C" NOT NULL,
    actor_name  text NOT NULL,
    action      text COLLATE "C" NOT NULL,
    object_type text COLLATE "C" NOT NULL,
    object_id   text COLLATE "C" NOT NULL,
    before      json,
    after       json
);
CREATE INDEX audit_type ON campanile.audit (object_type, id);
CREATE INDEX audit_object ON campanile.audit (object_type, object_id, id);
CREATE INDEX audit_actor ON campanile.audit (actor_id, id);

-- What was answered to requests with an Idempotency-Key, for a day.
CREATE TABLE campanile.idempotency_key (
    caller       text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    request_hash text COLLATE "C" NOT NULL,
    -- Rises with each request that takes the key, so that a late answer of an earlier one is not stored.
    fence        bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    -- Until when a request without an answer holds the key.
    lease_until  timestamptz NOT NULL,
    status       integer,
    content_type text,
    body         text,
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_key_age ON campanile.idempotency_key (created_at);


-- Records

-- What the provider `capture` "sent".
CREATE TABLE campanile.captured_message (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id  text COLLATE "C" NOT NULL,
    user_type text COLLATE "C" NOT NULL,
    user_id   text COLLATE "C" NOT NULL,
    channel   text COLLATE "C" NOT NULL,
    address   text NOT NULL,
    title     text NOT NULL,
    body      text NOT NULL,
    -- Of an e-mail that has HTML.
    html      text,
    at        timestamptz NOT NULL
);
CREATE INDEX captured_message_event ON campanile.captured_message (event_id, id);

CREATE TABLE campanile.dead_letter (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stage          text COLLATE "C" NOT NULL,
    event_id       text COLLATE "C",
    recipient_type text COLLATE "C",
    recipient_id   text COLLATE "C",
    channel        text COLLATE "C",
    provider       text COLLATE "C",
    reason         text COLLATE "C" NOT NULL,
    error          text NOT NULL,
    message        text,
    created_at     timestamptz NOT NULL,
    replayed_at    timestamptz
);
CREATE INDEX dead_letter_event ON campanile.dead_letter (event_id, id);


-- Instances

-- The number of each instance's name. Other rows hold the number, because names are long.
CREATE TABLE campanile.instance (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    -- Of its last start.
    started_at timestamptz NOT NULL,
    -- When it last tried whether it can write, for /readyz. No index holds it.
    written_at timestamptz
);

-- Work that only one instance may do at a time.
CREATE TABLE campanile.lease (
    name        text COLLATE "C" PRIMARY KEY,
    holder      text NOT NULL,
    lease_until timestamptz NOT NULL
);

-- Rows that arrived before this moment are deleted. It moves with the uptime of instances, so that a clock that jumps
-- ahead deletes nothing. One row, which is missing until there is something to keep.
CREATE TABLE campanile.retain_horizon (
    id      smallint PRIMARY KEY CHECK (id = 1),
    horizon timestamptz NOT NULL,
    -- Rises with each move, so that only one of several instances moves it.
    version bigint NOT NULL
);
