-- Takes or renews a lease, unless another holder has it. Uses the primary key.
INSERT INTO lease (name, holder, lease_until) VALUES (:name, :holder, :lease_until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE lease.holder = excluded.holder OR lease.lease_until <= :now
