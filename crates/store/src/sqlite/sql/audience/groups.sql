-- Reads the kinds of the given entities. Uses the primary key.
SELECT e.entity_type, e.entity_id, e.kind
FROM json_each(:entities) j
JOIN entity e ON e.entity_type = json_extract(j.value, '$[0]') AND e.entity_id = json_extract(j.value, '$[1]')
