//! Everything that can be asked of Campanile from outside, asked of the real binary: HTTP, the command line, the
//! configuration, the preset and the demo. One program, so that it is linked once; each file holds one subject.

mod access;
mod bad_events;
mod bad_rows;
mod command;
mod command_line;
mod configuration;
mod connections;
mod dead_letters;
mod demo;
mod doctor;
mod documents;
mod events;
mod examples;
mod fresh;
mod groups;
mod hardening;
mod health;
mod heavy;
mod listings;
mod mails;
mod metrics;
mod original_events;
mod preset;
mod providers;
mod pushes;
mod readme;
mod refused_at_start;
mod rows;
mod rule_changes;
mod screen;
mod sends;
mod slack;
mod stages;
#[expect(dead_code, reason = "what only the crash tests need is there too")]
#[path = "../support/mod.rs"]
mod support;
mod templates;
mod texts;
mod traces;

/// What this program runs on.
const BACKEND: support::Backend = support::Backend::Embedded;
