-- When an instance last tried whether it can write, for /readyz. No index holds it.
ALTER TABLE campanile.instance ADD COLUMN written_at timestamptz;
