-- Marks a dead letter whose event, row or send has been put back. Uses the primary key.
UPDATE campanile.dead_letter SET replayed_at = campanile.now() WHERE id = $1 AND replayed_at IS NULL
