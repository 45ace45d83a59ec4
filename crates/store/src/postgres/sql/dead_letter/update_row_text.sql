-- Writes the text of a row if the text could not be rendered before. Uses the primary key.
UPDATE campanile.outbox
SET title = $3, body = $4, inbox_title = $5, inbox_body = $6
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
