//! The stages of the engine, with scripted providers.

mod answers;
mod fan_out;
mod pipeline;
mod sending;
mod support;
mod telemetry;
