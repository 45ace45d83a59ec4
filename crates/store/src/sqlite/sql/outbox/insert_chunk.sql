-- Inserts a chunk of rows to publish.
INSERT INTO publish_chunk (queue, lane, first_id, last_id, lease_until)
VALUES (:queue, :lane, :first_id, :last_id, :lease_until)
