-- A letter whose subject is on its way again. Primary key.
UPDATE dead_letter SET replayed_at = :now WHERE id = :id AND replayed_at IS NULL
