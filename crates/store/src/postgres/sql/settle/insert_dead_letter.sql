-- Inserts dead letters, for what is not retried automatically.
INSERT INTO campanile.dead_letter (stage, event_id, recipient_type, recipient_id, channel, provider, reason, error,
                                   message, created_at)
SELECT n.*, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[]) AS n
