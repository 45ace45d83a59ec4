//! What is PostgreSQL's own: its plans, its locks, its roles. What every database does is in the conformance suite.

mod plan;
mod seed;
