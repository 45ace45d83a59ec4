-- Whether recipients are kept in our table, or in a view over somebody else's.
SELECT c.relkind FROM pg_class c WHERE c.oid = to_regclass('campanile.recipient')
