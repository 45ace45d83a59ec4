-- For each page that asks for an entity, reads the members of the entity after a position. Uses the partial index
-- recipient_walk.
SELECT p.page, r.user_type::text, r.user_id::text, r.entity_type::text, r.entity_id::text, r.role::text, r.name::text,
       r.email::text, r.phone::text, to_json(r.push_tokens)::text AS push_tokens, r.slack_webhook::text,
       r.addresses::text, r.locale::text, r.time_zone::text
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::json[], $8::bigint[])
     AS p (page, user_type, entity_type, entity_id, rank, user_id, roles, max_rows)
CROSS JOIN LATERAL (
    SELECT * FROM campanile.recipient r
    WHERE r.user_type = p.user_type AND coalesce(r.entity_id, '') = p.entity_id AND r.active
      AND ((CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C") > (p.rank, p.user_id)
      AND r.entity_type = p.entity_type
      AND (p.roles IS NULL OR r.role IN (SELECT json_array_elements_text(p.roles)))
    ORDER BY (CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C"
    LIMIT p.max_rows) r
