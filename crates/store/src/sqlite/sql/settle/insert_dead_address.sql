-- An address that nobody is at any more; what was known of it stays. Primary key.
INSERT INTO dead_address (channel, address, reason, at) VALUES (:channel, :address, :reason, :at)
ON CONFLICT DO NOTHING
