-- Reads the preferences of the given users. Uses a prefix of the primary key.
SELECT p.user_type, p.user_id, p.channel, p.event_type, p.enabled, p.min_priority, p.quiet_hours_start,
       p.quiet_hours_end, p.quiet_hours_mode
FROM json_each(:users) u
JOIN user_notification_preferences p
  ON p.user_type = json_extract(u.value, '$[0]') AND p.user_id = json_extract(u.value, '$[1]')
