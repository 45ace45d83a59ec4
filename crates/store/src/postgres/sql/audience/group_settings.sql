-- Reads the settings that belong to the given entities themselves. Uses a prefix of the primary key.
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.min_priority,
       s.roles, s.quiet_hours_start, s.quiet_hours_end, s.quiet_hours_mode
FROM unnest($1::text[], $2::text[]) AS j (entity_type, entity_id)
JOIN campanile.entity_notification_settings s ON s.entity_type = j.entity_type AND s.entity_id = j.entity_id
