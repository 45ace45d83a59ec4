-- Lets a send wait for its time.
INSERT INTO send_due (channel, lane, due_at, notification_id) VALUES (:channel, :lane, :due_at, :notification_id)
