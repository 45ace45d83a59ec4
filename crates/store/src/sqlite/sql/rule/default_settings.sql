-- Reads the default settings by type and kind, for the rule cache. Uses the partial index
-- entity_notification_settings_defaults.
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.min_priority,
       s.roles, s.quiet_hours_start, s.quiet_hours_end, s.quiet_hours_mode
FROM entity_notification_settings s
WHERE s.entity_id = '*'
ORDER BY s.entity_type
