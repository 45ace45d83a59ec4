-- Who was considered, by name. Primary keys.
SELECT r.user_type::text, r.user_id::text, r.name::text, r.role::text
FROM campanile.processed_event p
CROSS JOIN LATERAL json_array_elements(p.decisions) d
JOIN campanile.recipient r ON r.user_type = d ->> 'user_type' AND r.user_id = d ->> 'user_id'
WHERE p.event_id = $1 AND p.decisions IS NOT NULL
