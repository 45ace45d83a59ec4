-- Sends that wait for their time. One that has a place in the queue already, by a message that two instances received
-- at once, moves to the new time. Unique index send_due_send.
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
ON CONFLICT (notification_id, channel) DO UPDATE SET due_at = excluded.due_at, lane = excluded.lane
