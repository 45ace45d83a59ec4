//! Tests of `interface` that are repeated on PostgreSQL and RabbitMQ. Subjects that do not depend on the back ends are
//! left out.

#[path = "../interface/bad_events.rs"]
mod bad_events;
#[path = "../interface/bad_rows.rs"]
mod bad_rows;
#[path = "../interface/command.rs"]
mod command;
#[path = "../interface/command_line.rs"]
mod command_line;
#[path = "../interface/dead_letters.rs"]
mod dead_letters;
#[path = "../interface/documents.rs"]
mod documents;
#[path = "../interface/events.rs"]
mod events;
#[path = "../interface/examples.rs"]
mod examples;
#[path = "../interface/fresh.rs"]
mod fresh;
#[path = "../interface/groups.rs"]
mod groups;
#[path = "../interface/health.rs"]
mod health;
#[path = "../interface/heavy.rs"]
mod heavy;
#[path = "../interface/listings.rs"]
mod listings;
#[path = "../interface/mails.rs"]
mod mails;
#[path = "../interface/metrics.rs"]
mod metrics;
#[path = "../interface/original_events.rs"]
mod original_events;
#[path = "../interface/preset.rs"]
mod preset;
#[path = "../interface/providers.rs"]
mod providers;
#[path = "../interface/pushes.rs"]
mod pushes;
#[path = "../interface/rows.rs"]
mod rows;
#[path = "../interface/rule_changes.rs"]
mod rule_changes;
#[path = "../interface/sends.rs"]
mod sends;
#[path = "../interface/slack.rs"]
mod slack;
#[path = "../interface/stages.rs"]
mod stages;
#[expect(dead_code, reason = "what only the crash tests need is there too")]
#[path = "../support/mod.rs"]
mod support;
#[path = "../interface/texts.rs"]
mod texts;
#[path = "../interface/traces.rs"]
mod traces;

/// The back end of this program.
const BACKEND: support::Backend = support::Backend::Servers;
