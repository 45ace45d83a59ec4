-- The kinds of these entities. Primary key.
SELECT e.entity_type, e.entity_id, e.kind
FROM json_each(:entities) j
JOIN entity e ON e.entity_type = json_extract(j.value, '$[0]') AND e.entity_id = json_extract(j.value, '$[1]')
