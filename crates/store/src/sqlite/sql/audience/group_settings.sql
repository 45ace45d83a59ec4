-- Reads the settings that belong to the given entities themselves. Uses a prefix of the primary key.
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.min_priority,
       s.roles, s.quiet_hours_start, s.quiet_hours_end, s.quiet_hours_mode
FROM json_each(:entities) j
JOIN entity_notification_settings s
  ON s.entity_type = json_extract(j.value, '$[0]') AND s.entity_id = json_extract(j.value, '$[1]')
