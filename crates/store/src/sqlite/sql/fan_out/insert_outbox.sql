-- Inserts one outbox row. A recipient who already has a row from another page of the same event gets no second row.
INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, title, body,
                    inbox_title, inbox_body, priority, audience, entity_type, entity_id, shared_read, queue, chunk_id,
                    status, last_error, created_at)
VALUES (:notification_id, :channel, :event_id, :recipient_type, :recipient_id, :recipient_address, :title, :body,
        :inbox_title, :inbox_body, :priority, :audience, :entity_type, :entity_id, :shared_read, :queue, :chunk_id,
        :status, :last_error, :now)
ON CONFLICT DO NOTHING
