-- Reads the names of the recipients that were considered. Uses primary keys.
SELECT r.user_type::text, r.user_id::text, r.name::text, r.role::text
FROM campanile.processed_event p
CROSS JOIN LATERAL json_array_elements(p.decisions) d
CROSS JOIN LATERAL (SELECT v.user_type, v.user_id, v.name, v.role FROM campanile.recipient v
                    WHERE v.user_type = d ->> 'user_type' AND v.user_id = d ->> 'user_id' OFFSET 0) r
WHERE p.event_id = $1 AND p.decisions IS NOT NULL
