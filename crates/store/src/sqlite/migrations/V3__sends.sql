-- Sends that are in doubt, those of several addresses, and posts that several recipients share.

-- Which sends are in doubt, and since when. Triggers keep it: a file may go back to a release that knows nothing of it.
CREATE TABLE send_doubt (
    since           TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    PRIMARY KEY (since, notification_id, channel)
) WITHOUT ROWID;
CREATE UNIQUE INDEX send_doubt_send ON send_doubt (notification_id, channel);
CREATE TRIGGER send_doubt_begins AFTER UPDATE OF status ON send WHEN NEW.status = 'IN_DOUBT' AND OLD.status <> 'IN_DOUBT'
BEGIN
    INSERT OR IGNORE INTO send_doubt (since, notification_id, channel)
    VALUES (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), NEW.notification_id, NEW.channel);
END;
CREATE TRIGGER send_doubt_ends AFTER UPDATE OF status ON send WHEN OLD.status = 'IN_DOUBT' AND NEW.status <> 'IN_DOUBT'
BEGIN
    DELETE FROM send_doubt WHERE notification_id = NEW.notification_id AND channel = NEW.channel;
END;
INSERT INTO send_doubt (since, notification_id, channel)
SELECT coalesce((SELECT max(a.at) FROM send_attempt a WHERE a.notification_id = s.notification_id AND a.channel = s.channel),
                s.created_at),
       s.notification_id, s.channel
FROM send s
WHERE s.status = 'IN_DOUBT';

-- What became of each address of a send that has several: of a push, each token. Those that are left are in send.recipient_address.
CREATE TABLE send_address (
    notification_id TEXT NOT NULL,
    channel         TEXT NOT NULL,
    address         TEXT NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('SENT', 'REJECTED', 'DEAD')),
    external_id     TEXT,
    error           TEXT,
    at              TEXT NOT NULL,
    PRIMARY KEY (notification_id, channel, address)
) WITHOUT ROWID;

-- Whose send posts an event to a webhook. The webhook is a secret, so only its SHA-256 is here.
CREATE TABLE event_post (
    event_id        TEXT NOT NULL,
    address_hash    TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    at              TEXT NOT NULL,
    PRIMARY KEY (event_id, address_hash)
) WITHOUT ROWID;
