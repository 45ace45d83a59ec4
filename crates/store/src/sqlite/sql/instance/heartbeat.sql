-- A small write, to see whether one can be made. The time differs from the last, or SQLite would write nothing. Primary
-- key.
UPDATE instance SET written_at = :now WHERE id = :id
