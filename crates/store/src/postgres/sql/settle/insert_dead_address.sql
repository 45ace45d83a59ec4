-- Inserts addresses at which nobody can be reached any more. An existing row is left unchanged. Uses the primary key,
-- in its order.
INSERT INTO campanile.dead_address (channel, address, reason, at)
SELECT n.*, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[]) AS n (channel, address, reason)
ORDER BY n.channel, n.address
ON CONFLICT DO NOTHING
