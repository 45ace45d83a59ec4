-- Lets sends wait for their time. A send may be in the queue already, if two instances received its message at once; it
-- moves to the new time. Unique index send_due_send.
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
ON CONFLICT (notification_id, channel) DO UPDATE SET due_at = excluded.due_at, lane = excluded.lane
