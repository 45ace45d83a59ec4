-- Puts a send into the queue of due sends, with the time at which it is due.
INSERT INTO send_due (channel, lane, due_at, notification_id) VALUES (:channel, :lane, :due_at, :notification_id)
