-- A small write, to see whether one can be made. Another instance has another row, so that none waits. Primary key;
-- HOT.
UPDATE campanile.instance SET written_at = campanile.now() WHERE id = $1
