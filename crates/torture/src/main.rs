//! Faults of every kind against real instances, and a ledger that says whether anything was lost or told twice.

fn main() {}
