//! `campanile trace`: shows what happened to an event, on one screen.

use clap::Args;

use super::client::{Client, encoded};
use super::output::say;
use super::{CommandError, CommandResult, trace_table};

#[derive(Debug, Args)]
pub struct Trace {
    event_id: String,
    /// Only this user, such as `RESTAURANT_USER:2`
    #[arg(long, value_name = "TYPE:ID")]
    user: Option<String>,
}

impl Trace {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut path = format!("/v1/events/{}", encoded(&self.event_id));
        if let Some(user) = &self.user {
            let Some((user_type, user_id)) = user.split_once(':') else {
                let what = format!("--user: `{user}` is not TYPE:ID, such as RESTAURANT_USER:2");
                return Err(CommandError::Usage(what));
            };
            path = format!("{path}?user_type={}&user_id={}", encoded(user_type), encoded(user_id));
        }
        let answer = client.get(&path).await?;
        if as_json {
            say!("{answer}")?;
        } else {
            say!("{}", trace_table::trace(&answer))?;
        }
        Ok(())
    }
}
