-- Reads the recipients of a type after a position. Uses the partial index recipient_walk.
SELECT user_type, user_id, entity_type, entity_id, role, name, email, phone, push_tokens, slack_webhook, addresses,
       locale, time_zone, active
FROM recipient
WHERE user_type = :user_type AND active = 1
  AND (entity_key, rank, user_id) > (:entity_id, :rank, :user_id)
  AND (:roles IS NULL OR role IN (SELECT value FROM json_each(:roles)))
ORDER BY entity_key, rank, user_id
LIMIT :limit
