-- Revokes a key that is not revoked yet. Uses the unique index on id.
UPDATE campanile.api_key SET revoked_at = campanile.now() WHERE id = $1 AND revoked_at IS NULL RETURNING name
