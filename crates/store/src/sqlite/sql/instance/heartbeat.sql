-- A small write, to test whether the database can write. The time differs from the last one, because SQLite does not
-- write an equal value. Primary key.
UPDATE instance SET written_at = :now WHERE id = :id
