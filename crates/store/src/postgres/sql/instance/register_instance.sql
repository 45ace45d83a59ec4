-- The number of an instance's name: the earlier one, or the next free one. Unique index on name.
INSERT INTO campanile.instance (name, started_at) VALUES ($1, campanile.now())
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at
RETURNING id
