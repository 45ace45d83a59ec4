//! The rules of Campanile as pure functions. Time, settings and rows are arguments; decisions are results. This crate
//! does no I/O: databases, brokers and providers belong to other crates.

pub mod access;
pub mod channel;
pub mod event;
pub mod fan_out;
pub mod finding;
pub mod hex;
pub mod id;
pub mod inbox;
pub mod message;
pub mod people;
pub mod priority;
pub mod queue;
pub mod replay;
pub mod rules;
pub mod schema;
pub mod send;
pub mod status;
pub mod template;
pub mod time;
