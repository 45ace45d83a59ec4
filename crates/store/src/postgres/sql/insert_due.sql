-- Sends that wait for their time.
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
