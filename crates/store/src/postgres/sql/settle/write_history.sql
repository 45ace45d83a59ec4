-- Writes the deferrals and unanswered messages of sends, right after their outcomes and in the same transaction. Most
-- sends have none, and then this statement is not run. Uses the primary key. No index contains the changed columns, so
-- this is a HOT update.
UPDATE campanile.send s SET deferred_since = h.deferred_since, deferrals = h.deferrals, unanswered = h.unanswered
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::int[], $5::boolean[])
     AS h (notification_id, channel, deferred_since, deferrals, unanswered)
WHERE s.notification_id = h.notification_id AND s.channel = h.channel
