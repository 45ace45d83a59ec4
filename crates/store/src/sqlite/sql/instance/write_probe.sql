-- Makes a small write, to test whether the database accepts writes. The time always differs from the previous one,
-- because SQLite does not write a value that is unchanged. Uses the primary key.
UPDATE instance SET written_at = :now WHERE id = :id
