-- Removes confirmed rows from a chunk: all rows except the refused ones. Uses a range of the primary key.
UPDATE outbox
SET chunk_id = NULL
WHERE chunk_id = :chunk_id
  AND notification_id BETWEEN (SELECT first_id FROM publish_chunk WHERE id = :chunk_id)
                          AND (SELECT last_id FROM publish_chunk WHERE id = :chunk_id)
  AND notification_id || ':' || channel NOT IN (SELECT value FROM json_each(:refused))
