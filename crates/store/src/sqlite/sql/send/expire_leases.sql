-- Run at start: this process holds the file's lock, so all holders of claims are gone. Index send_claim_expiry.
UPDATE send_claim SET lease_until = '' WHERE lease_until > ''
