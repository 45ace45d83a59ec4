-- Reads the names of the recipients that were considered. Uses primary keys.
SELECT r.user_type, r.user_id, r.name, r.role
FROM processed_event p
JOIN json_each(p.decisions) d
JOIN recipient r ON r.user_type = json_extract(d.value, '$.user_type')
    AND r.user_id = json_extract(d.value, '$.user_id')
WHERE p.event_id = :event_id AND p.decisions IS NOT NULL
