-- Expires the leases of all claims at start. This process holds the file's lock, so all holders of claims are gone.
-- Uses the index send_claim_expiry.
UPDATE send_claim SET lease_until = '' WHERE lease_until > ''
