-- What a row says whose text could not be written before. Primary key.
UPDATE outbox
SET title = :title, body = :body, inbox_title = :inbox_title, inbox_body = :inbox_body
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
