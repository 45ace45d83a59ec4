-- Reads which of the given addresses are dead. Uses the primary key.
SELECT d.channel, d.address, d.reason
FROM json_each(:addresses) a
JOIN dead_address d ON d.channel = json_extract(a.value, '$[0]') AND d.address = json_extract(a.value, '$[1]')
