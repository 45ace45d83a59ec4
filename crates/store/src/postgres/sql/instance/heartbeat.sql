-- A small write, to test whether the database can write. Each instance has its own row, so that none waits. Primary
-- key; a HOT update.
UPDATE campanile.instance SET written_at = campanile.now() WHERE id = $1
