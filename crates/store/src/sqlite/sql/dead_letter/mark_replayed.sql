-- Marks a dead letter whose event, row or send has been put back. Uses the primary key.
UPDATE dead_letter SET replayed_at = :now WHERE id = :id AND replayed_at IS NULL
