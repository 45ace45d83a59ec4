//! `campanile serve` and `campanile migrate`.

use std::net::SocketAddr;

use clap::Args;

use super::CommandResult;
use crate::app;
use crate::config::Config;
use crate::data_folder;

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

impl Serve {
    pub async fn run(&self, config: Config) -> CommandResult {
        app::start_logging(&config);
        let served = app::serve(config).await?;
        println!("Campanile listens on http://{}", served.address);
        println!("E-mail, push, SMS and Slack are captured, not sent: see GET /v1/captured");
        app::told_to_stop().await;
        served.stop().await?;
        Ok(())
    }
}

pub fn migrate(config: &Config) -> CommandResult {
    let path = config.database_path()?;
    data_folder::make(config)?;
    campanile_store::sqlite::Sqlite::open(&path)?;
    println!("{} is up to date", path.display());
    Ok(())
}
