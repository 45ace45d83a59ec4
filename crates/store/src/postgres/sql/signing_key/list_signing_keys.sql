-- Every key, the newest first. There are few.
SELECT id, secret FROM campanile.signing_key ORDER BY id DESC
