//! `campanile config check` and `campanile config print`.

use clap::Subcommand;

use super::CommandResult;
use super::output::{self, say};
use crate::config::{Config, Flags, REFERENCE};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether the configuration is right
    Check,
    /// Print the configuration in force, secrets left out
    Print {
        /// Print the reference instead: every key, commented, with its default
        #[arg(long)]
        reference: bool,
    },
}

impl ConfigCommand {
    pub fn run(&self, flags: &Flags) -> CommandResult {
        match self {
            ConfigCommand::Check => {
                Config::load(flags)?;
                say!("the configuration is right")?;
            }
            ConfigCommand::Print { reference: true } => output::write(REFERENCE)?,
            ConfigCommand::Print { reference: false } => {
                output::write(&toml::to_string(&Config::load(flags)?)?)?;
            }
        }
        Ok(())
    }
}
