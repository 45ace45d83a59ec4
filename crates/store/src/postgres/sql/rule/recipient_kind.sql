-- Whether recipients are our table, or a view over tables of the business.
SELECT c.relkind FROM pg_class c WHERE c.oid = to_regclass('campanile.recipient')
