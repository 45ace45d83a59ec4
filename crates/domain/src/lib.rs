//! The rules of Campanile as pure functions. Time, settings and rows come in as arguments; what to do comes out.
//! No I/O happens here: databases, brokers and providers are the business of other crates.

pub mod channel;
pub mod event;
pub mod fan_out;
pub mod finding;
pub mod id;
pub mod message;
pub mod people;
pub mod priority;
pub mod queue;
pub mod rules;
pub mod send;
pub mod status;
pub mod template;
pub mod time;
