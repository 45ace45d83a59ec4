-- Puts sends into the queue of due sends, with the time at which they are due. A send may be in the queue already, if
-- two instances received its message at once. It then moves to the new time. Uses the unique index send_due_send.
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
ON CONFLICT (notification_id, channel) DO UPDATE SET due_at = excluded.due_at, lane = excluded.lane
