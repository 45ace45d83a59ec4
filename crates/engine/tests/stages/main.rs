//! Tests the stages of the engine on both databases, with scripted providers.

mod answers;
mod fan_out;
mod pipeline;
mod sending;
mod support;
mod telemetry;
