-- Inserts a message that `capture` sent.
INSERT INTO captured_message (event_id, user_type, user_id, channel, address, title, body, html, at)
VALUES (:event_id, :user_type, :user_id, :channel, :address, :title, :body, :html, :at)
