-- Up to which moment of arrival old rows are deleted. It moves with the uptime of instances, so that a clock that jumps ahead deletes
-- nothing. One row, from the first time that there is something to keep.
CREATE TABLE campanile.retain_horizon (
    id      smallint PRIMARY KEY CHECK (id = 1),
    horizon timestamptz NOT NULL,
    -- Rises with each look at it by whoever moves it, so that of several instances one does.
    moves   bigint NOT NULL
);
