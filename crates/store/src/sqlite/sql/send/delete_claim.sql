-- Deletes a claim that has no sends. Uses the primary key.
DELETE FROM send_claim WHERE id = :id
