//! Everything that users can do with Campanile: HTTP, the command line, the configuration, the preset and the demo.
//! Each file has one subject.

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
mod pushes;
mod readme;
mod refused_at_start;
mod rows;
mod rule_changes;
mod screen;
mod sends;
mod slack;
mod stages;
mod templates;
mod texts;
mod traces;
