-- Returns the number of the instance with the given name: its earlier number, or the next free one. Uses the unique
-- index on name.
INSERT INTO instance (name, started_at) VALUES (:name, :now)
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at
RETURNING id
