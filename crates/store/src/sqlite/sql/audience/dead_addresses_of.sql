-- The dead ones among these addresses. Primary key.
SELECT d.channel, d.address, d.reason
FROM json_each(:addresses) a
JOIN dead_address d ON d.channel = json_extract(a.value, '$[0]') AND d.address = json_extract(a.value, '$[1]')
