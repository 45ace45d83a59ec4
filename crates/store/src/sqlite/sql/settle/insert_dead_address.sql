-- Inserts an address at which nobody can be reached any more. An existing row is left unchanged. Uses the primary key.
INSERT INTO dead_address (channel, address, reason, at) VALUES (:channel, :address, :reason, :at)
ON CONFLICT DO NOTHING
