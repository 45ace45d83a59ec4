-- Being the only one: who holds what, and until when.
CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    lease_until TEXT NOT NULL
) WITHOUT ROWID;
