//! `campanile config check` and `campanile config print`.

use clap::{Args, Subcommand};

use super::CommandResult;
use super::output::{self, say};
use super::serve::Serve;
use crate::config::{Config, Flags, REFERENCE};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether `serve` would accept the configuration, with the same flags
    Check(Serve),
    /// Print the configuration in force, secrets left out
    Print(Print),
}

pub fn check(flags: &Flags) -> CommandResult {
    Config::load_to_serve(flags)?;
    say!("the configuration is right")?;
    Ok(())
}

#[derive(Debug, Args)]
pub struct Print {
    /// Print the reference instead: every key, commented, with its default
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
