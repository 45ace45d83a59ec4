-- Sends that are in doubt, those of several addresses, and posts that several recipients share.

-- Which sends are in doubt, and since when. A trigger keeps it: a release that knows nothing of it may run beside this one.
CREATE TABLE campanile.send_doubt (
    since           timestamptz NOT NULL,
    notification_id uuid NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    PRIMARY KEY (since, notification_id, channel)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX send_doubt_send ON campanile.send_doubt (notification_id, channel);

-- By whoever may change a send.
CREATE FUNCTION campanile.note_doubt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
BEGIN
    IF NEW.status = 'IN_DOUBT' THEN
        INSERT INTO campanile.send_doubt (since, notification_id, channel)
        VALUES (campanile.now(), NEW.notification_id, NEW.channel)
        ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM campanile.send_doubt WHERE notification_id = NEW.notification_id AND channel = NEW.channel;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION campanile.note_doubt() FROM PUBLIC;
-- What never was in doubt costs one comparison.
CREATE TRIGGER note_doubt AFTER UPDATE OF status ON campanile.send
    FOR EACH ROW WHEN ((OLD.status = 'IN_DOUBT') <> (NEW.status = 'IN_DOUBT')) EXECUTE FUNCTION campanile.note_doubt();

-- What became of each address of a send that has several: of a push, each token. Those that are left are in send.recipient_address.
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

-- Whose send posts an event to a webhook. The webhook is a secret, so only its SHA-256 is here.
CREATE TABLE campanile.event_post (
    event_id        text COLLATE "C" NOT NULL,
    address_hash    text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    at              timestamptz NOT NULL,
    PRIMARY KEY (event_id, address_hash)
);
