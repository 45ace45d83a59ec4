-- Claims the earliest due sends of a channel and lane for an attempt. Uses primary keys. Sends that another claim is
-- taking are skipped. A send that is no longer due only loses its entry in the queue. $7 says whether sends of the
-- channel have several addresses; `any_sent` then says whether one of the finished addresses was sent to. The limit is
-- evaluated once, and the rows are found by their physical location. In a join, the limit might be evaluated again for
-- every row, and would then skip rows that were just deleted.
WITH taken AS (
    DELETE FROM campanile.send_due
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM campanile.send_due
        WHERE channel = $1 AND lane = $2 AND due_at <= campanile.now()
        ORDER BY due_at, notification_id
        LIMIT $3
        FOR UPDATE SKIP LOCKED))
    RETURNING channel, due_at, notification_id),
claimed AS (
    INSERT INTO campanile.send_claim (instance, lease_until, notifications)
    SELECT $4, campanile.now() + make_interval(secs => $5), array_agg(notification_id) FROM taken
    HAVING count(*) > 0
    RETURNING id),
started AS (
    UPDATE campanile.send s SET status = 'SENDING', lease = claimed.id, attempted_by = $6
    FROM taken, claimed
    WHERE s.notification_id = taken.notification_id AND s.channel = taken.channel AND s.status = 'DUE'
    RETURNING s.notification_id, s.channel, s.recipient_address, s.attempt_count, s.deferred_since, s.deferrals,
        s.unanswered,
              s.lease AS claim, taken.due_at)
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id,
       started.recipient_address, o.title, o.body, o.priority, started.attempt_count, e.created_at,
       started.deferred_since, started.deferrals, started.unanswered, started.claim, started.due_at,
       CASE WHEN $7::boolean AND started.recipient_address <> o.recipient_address THEN
           EXISTS (SELECT 1 FROM campanile.send_address a
                   WHERE a.notification_id = o.notification_id AND a.channel = o.channel AND a.outcome = 'SENT')
       END AS any_sent
FROM started
JOIN campanile.outbox o ON o.notification_id = started.notification_id AND o.channel = started.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id
