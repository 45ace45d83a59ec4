-- A letter whose subject is on its way again. Primary key.
UPDATE campanile.dead_letter SET replayed_at = campanile.now() WHERE id = $1 AND replayed_at IS NULL
