-- Inserts the messages that `capture` sent.
INSERT INTO campanile.captured_message (event_id, user_type, user_id, channel, address, title, body, html, at)
SELECT n.*, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) AS n
