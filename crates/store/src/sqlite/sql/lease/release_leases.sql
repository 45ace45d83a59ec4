-- At start: whoever held a lease is gone, because the file's lock is ours. A scan: there are as many as things that
-- must not run twice.
DELETE FROM lease
