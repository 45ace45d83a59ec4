//! `campanile config check` and `campanile config print`.

use clap::Subcommand;

use super::CommandResult;
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
                println!("the configuration is right");
            }
            ConfigCommand::Print { reference: true } => print!("{REFERENCE}"),
            ConfigCommand::Print { reference: false } => {
                print!("{}", toml::to_string(&Config::load(flags)?)?);
            }
        }
        Ok(())
    }
}
