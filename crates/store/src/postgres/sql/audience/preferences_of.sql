-- Reads the preferences of the given users. Uses a prefix of the primary key.
SELECT p.user_type, p.user_id, p.channel, p.event_type, p.enabled, p.min_priority, p.quiet_hours_start,
       p.quiet_hours_end, p.quiet_hours_mode
FROM unnest($1::text[], $2::text[]) AS u (user_type, user_id)
JOIN campanile.user_notification_preferences p ON p.user_type = u.user_type AND p.user_id = u.user_id
