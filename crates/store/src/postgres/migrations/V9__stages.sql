-- Which instance did what, and when: the trace names it per stage. Rows say it by a number, since names are long.
CREATE TABLE campanile.instance (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    -- Of its last start.
    started_at timestamptz NOT NULL
);

-- When it was published and by whom, who received it, when the last attempt began and whose it was, and who wrote the last outcome.
-- A claim writes the last three in advance, so that a send does not grow when it is settled. It was received at created_at, and settled at sent_at or with its last row of send_attempt. Rows of an earlier release have nothing here.
ALTER TABLE campanile.send
    ADD COLUMN published_at timestamptz,
    ADD COLUMN attempted_at timestamptz,
    ADD COLUMN published_by integer,
    ADD COLUMN received_by integer,
    ADD COLUMN attempted_by integer,
    ADD COLUMN settled_by integer;
-- Whose attempt it was.
ALTER TABLE campanile.send_attempt ADD COLUMN instance integer;
