-- Makes a small write, to test whether the database accepts writes. Each instance has its own row, so that no instance
-- waits for another. Uses the primary key. It is a HOT update.
UPDATE campanile.instance SET written_at = campanile.now() WHERE id = $1
