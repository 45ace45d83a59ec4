//! Instances that are killed, lose their servers, or meet providers that break off. Nothing is lost or sent twice.

mod instances;
mod mails;
mod outages;
mod pipeline;
mod pushes;
mod slack;
