-- Revokes a key that is not revoked yet. Uses the unique index on id.
UPDATE api_key SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING name
