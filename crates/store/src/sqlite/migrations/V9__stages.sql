-- Which instance did what, and when: the trace names it per stage. Rows say it by a number, since names are long.
CREATE TABLE instance (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    -- Of its last start.
    started_at TEXT NOT NULL
);

-- When it was published and by whom, who received it, when the last attempt began and whose it was, and who wrote the last outcome.
-- A claim writes the last three in advance, so that a send does not grow when it is settled. It was received at created_at, and settled at sent_at or with its last row of send_attempt. Rows of an earlier release have nothing here.
-- Times are milliseconds since 1970, which are a quarter of a text.
ALTER TABLE send ADD COLUMN published_at INTEGER;
ALTER TABLE send ADD COLUMN attempted_at INTEGER;
ALTER TABLE send ADD COLUMN published_by INTEGER;
ALTER TABLE send ADD COLUMN received_by INTEGER;
ALTER TABLE send ADD COLUMN attempted_by INTEGER;
ALTER TABLE send ADD COLUMN settled_by INTEGER;
-- Whose attempt it was.
ALTER TABLE send_attempt ADD COLUMN instance INTEGER;
