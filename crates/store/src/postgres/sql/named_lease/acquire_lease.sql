-- Takes or renews a lease, unless another holder has it. Uses the primary key.
INSERT INTO campanile.lease (name, holder, lease_until) VALUES ($1, $2, campanile.now() + make_interval(secs => $3))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE lease.holder = excluded.holder OR lease.lease_until <= campanile.now()
