-- Writes the text of a row if the text could not be rendered before. Uses the primary key.
UPDATE outbox
SET title = :title, body = :body, inbox_title = :inbox_title, inbox_body = :inbox_body
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
