-- As before, but nobody is notified while an instance looks for events every few milliseconds anyway, and holds the lock `campanile.signals`
-- meanwhile: transactions that notify commit one after the other, over the whole server. Whether somebody holds it is asked by taking it, and
-- it is given back at once, so that the answer does not depend on how long the transaction takes, or on others who ask.
CREATE OR REPLACE FUNCTION campanile.emit(event_id text, event_type text, aggregate_type text, aggregate_id text, payload jsonb,
                                          priority text DEFAULT NULL, occurred_at timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    signals CONSTANT bigint := hashtextextended('campanile.signals', 0);
BEGIN
    -- An id whose event is long gone is still known.
    PERFORM 1 FROM campanile.processed_event p WHERE p.event_id = emit.event_id;
    IF FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at)
    VALUES (emit.event_id, emit.event_type, emit.aggregate_type, emit.aggregate_id, emit.payload::json, emit.priority,
            emit.occurred_at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF pg_try_advisory_lock_shared(signals) THEN
        PERFORM pg_advisory_unlock_shared(signals);
        PERFORM pg_notify('campanile', '');
    END IF;
    RETURN true;
END $$;
