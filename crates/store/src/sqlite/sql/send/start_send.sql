-- Claims a due send for an attempt. Uses the primary key.
UPDATE send SET status = 'SENDING', lease = :lease, attempted_by = :instance
WHERE notification_id = :notification_id AND channel = :channel AND status = 'DUE'
