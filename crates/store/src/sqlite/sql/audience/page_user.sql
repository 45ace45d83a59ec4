-- Reads one user. Uses the primary key.
SELECT user_type, user_id, entity_type, entity_id, role, name, email, phone, push_tokens, slack_webhook, addresses,
       locale, time_zone, active
FROM recipient
WHERE user_type = :user_type AND user_id = :user_id AND active = 1
  AND (:roles IS NULL OR role IN (SELECT value FROM json_each(:roles)))
