//! `campanile config check` and `campanile config print`.

use clap::{Args, Subcommand};

use super::CommandResult;
use super::output::{self, say};
use super::serve::Serve;
use crate::config::{Config, Flags, REFERENCE};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check that `serve` accepts the configuration and flags
    Check(Serve),
    /// Print the effective configuration with secrets redacted
    Print(Print),
}

pub fn check(flags: &Flags) -> CommandResult {
    Config::load_to_serve(flags)?;
    say!("the configuration is valid")?;
    Ok(())
}

#[derive(Debug, Args)]
pub struct Print {
    /// Print the reference configuration: every key with its default and a comment
    #[arg(long)]
    reference: bool,
}

impl Print {
    pub fn run(&self, flags: &Flags) -> CommandResult {
        if self.reference {
            output::write(REFERENCE)?;
        } else {
            output::write(&toml::to_string(&Config::load(flags)?)?)?;
        }
        Ok(())
    }
}
