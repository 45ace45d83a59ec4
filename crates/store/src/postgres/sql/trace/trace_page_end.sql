-- Reads a page of an event's recipients and returns its last user. Uses the unique index outbox_recipient.
SELECT recipient_type, recipient_id
FROM (SELECT DISTINCT recipient_type, recipient_id
      FROM campanile.outbox
      WHERE event_id = $1 AND (recipient_type, recipient_id) >= ($2, $3)
      ORDER BY recipient_type, recipient_id
      LIMIT $4) page
ORDER BY recipient_type DESC, recipient_id DESC
LIMIT 1
