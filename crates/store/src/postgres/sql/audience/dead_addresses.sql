-- Reads which of the given addresses are dead. Uses the primary key.
SELECT d.channel, d.address, d.reason
FROM unnest($1::text[], $2::text[]) AS a (channel, address)
JOIN campanile.dead_address d ON d.channel = a.channel AND d.address = a.address
