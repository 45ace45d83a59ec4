//! `campanile doctor`: what is reachable, what is misconfigured, and what to do about it. It changes nothing, and
//! continues past failures. The crate that knows a part examines it.

mod broker;
mod folder;
mod server;

use std::fmt::Write;
use std::io::IsTerminal;

use anyhow::anyhow;
use campanile_domain::finding::{Finding, Level};
use campanile_store::postgres::Postgres;
use campanile_store::sqlite::Sqlite;
use campanile_store::{Examined, Identity};
use clap::Args;
use serde_json::json;

use super::invocation::Invocation;
use super::output::{self, columns, say, wrapped};
use super::serve::Serve;
use super::{CommandResult, with_causes};
use crate::config::{self, Config, DatabaseChoice, Flags};
use server::Asked;

#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub serve: Serve,
}

impl Doctor {
    pub async fn run(&self, flags: &Flags, url: Option<&str>, as_json: bool) -> CommandResult {
        let findings = match Config::load_to_serve(flags) {
            Ok(config) => {
                let url = url.map_or_else(|| config.server.url_of(config.server.listen), str::to_owned);
                let invocation = Invocation::new(flags.file.as_deref(), &url, &config);
                let findings = examine(&config, flags, url.trim_end_matches('/')).await;
                findings.into_iter().map(|finding| copyable(finding, &invocation)).collect()
            }
            Err(error) => vec![Finding::wrong(
                "configuration",
                with_causes(&error),
                "correct it; `campanile config print --reference` shows every key",
            )],
        };
        if as_json {
            say!("{}", json!(findings))?;
        } else {
            output::write(&report(&findings, std::io::stdout().is_terminal(), columns()))?;
        }
        match findings.iter().filter(|finding| finding.level == Level::Wrong).count() {
            0 => Ok(()),
            1 => Err(anyhow!("1 problem found").into()),
            count => Err(anyhow!("{count} problems found").into()),
        }
    }
}

/// Adds the flags that reach the same server to the commands in a finding's remedy.
fn copyable(finding: Finding, invocation: &Invocation) -> Finding {
    let Finding { level, subject, what, remedy } = finding;
    let remedy = remedy.map(|remedy| invocation.rewrite(&remedy));
    Finding { level, subject, what: invocation.rewrite(&what), remedy }
}

async fn examine(config: &Config, flags: &Flags, url: &str) -> Vec<Finding> {
    let (database, broker, channels, server) =
        tokio::join!(database(config), broker::examine(config), channels(config), Asked::at(url));
    let from = flags.file.as_ref().map_or_else(
        || "no configuration file; using defaults".to_owned(),
        |file| format!("{} is valid", file.display()),
    );
    let mut findings = vec![Finding::ok("configuration", from)];
    findings.extend(environment());
    findings.extend(folder::examine(config));
    findings.extend(database.findings);
    findings.extend(broker);
    findings.extend(channels);
    findings.push(server.finding(&database.identity));
    findings
}

/// The names of the environment variables that set something. Values are not shown, because they may be secret.
fn environment() -> Option<Finding> {
    let names = config::variable_names();
    (!names.is_empty()).then(|| Finding::ok("environment", format!("sets {}", names.join(", "))))
}

async fn database(config: &Config) -> Examined {
    match config.database.choice(&config.data_dir) {
        Ok(DatabaseChoice::Sqlite { path }) => Sqlite::examine(&path).await,
        Ok(DatabaseChoice::Postgres(postgres)) => Postgres::examine(&postgres).await,
        Err(error) => {
            let findings = vec![Finding::wrong("database", with_causes(&error), "correct database.url")];
            Examined { findings, identity: Identity::Unknown }
        }
    }
}

/// The channels that send, and those that only capture.
async fn channels(config: &Config) -> Vec<Finding> {
    let providers = match config.providers() {
        Ok(providers) => providers,
        Err(error) => {
            return vec![Finding::wrong("channels", with_causes(&error), "fix the key named above")];
        }
    };
    let mut findings = Vec::new();
    let mut captured = Vec::new();
    for (channel, chain) in providers.iter() {
        if chain.captures() {
            captured.push(channel.as_str());
            continue;
        }
        for link in chain.links() {
            findings.push(link.provider.examine(channel).await);
        }
    }
    if let Some(sender) = config.channels.email.assumed_sender() {
        let what = format!(
            "e-mail is sent from {} because channels.email.from is not set; many mail servers reject an unknown sender",
            sender.mailbox
        );
        findings.push(Finding::note("channels", what));
    }
    if !captured.is_empty() {
        let what = format!("{} messages are captured, not sent; see GET /v1/captured", captured.join(", "));
        findings.push(Finding::note("channels", what));
    }
    findings
}

/// The findings, each with its remedy below, in lines of at most `columns` characters.
fn report(findings: &[Finding], colours: bool, columns: usize) -> String {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or_default();
    let mut out = String::new();
    for Finding { level, subject, what, remedy } in findings {
        let (sign, colour) = match level {
            Level::Ok => ("ok   ", "32"),
            Level::Note => ("note ", "33"),
            Level::Wrong => ("WRONG", "1;31"),
        };
        let sign = if colours { format!("\u{1b}[{colour}m{sign}\u{1b}[0m") } else { sign.to_owned() };
        // The sign has five characters; two blanks follow it, and two follow the subject.
        let indent = 5 + 2 + width + 2;
        let _ = writeln!(
            out,
            "{sign}  {subject:<width$}  {}",
            wrapped(what, indent, indent, columns).trim_start()
        );
        for (place, line) in remedy.iter().flat_map(|remedy| remedy.lines()).enumerate() {
            let arrow = if place == 0 { '→' } else { ' ' };
            let line = wrapped(line, indent + 2, indent + 2, columns);
            let _ = writeln!(out, "{:indent$}{arrow} {}", "", line.trim_start());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_stand_in_columns_with_what_to_do_below() {
        let findings = [
            Finding::ok("database", "it answers"),
            Finding::note("dead letters", "2 not replayed").with_remedy("look at them"),
            Finding::wrong("broker", "it does not\n  answer", "start it:\nsystemctl start rabbitmq-server"),
        ];
        let expected = "ok     database      it answers\n\
                        note   dead letters  2 not replayed\n                     → look at them\n\
                        WRONG  broker        it does not answer\n                     → start it:\n\
                        \x20                      systemctl start rabbitmq-server\n";
        assert_eq!(report(&findings, false, 80), expected);
        assert!(report(&findings, true, 80).contains("\u{1b}[1;31mWRONG\u{1b}[0m  broker"));
    }
}
