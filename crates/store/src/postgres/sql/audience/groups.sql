-- Reads the kinds of the given entities. Uses the primary key.
SELECT e.entity_type, e.entity_id, e.kind
FROM unnest($1::text[], $2::text[]) AS j (entity_type, entity_id)
JOIN campanile.entity e ON e.entity_type = j.entity_type AND e.entity_id = j.entity_id
