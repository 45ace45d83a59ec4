//! `campanile template`: renders a template for an event, and loads templates from files.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::emit::{read_json, read_payload};
use super::output::say;
use super::template_folder;
use super::{CommandError, CommandResult};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Render a message as a recipient would see it; sends nothing
    Render(Render),
    /// Load all templates of a folder in one transaction, replacing rows with the same keys
    Load {
        /// Files such as `ORDER_CREATED/EMAIL.it.txt` and `ORDER_CREATED/EMAIL.it.mjml`; `any` stands for `*`
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct Render {
    /// The event: its type, a JSON object, @FILE, or @- for standard input
    #[arg(long, value_name = "TYPE|JSON|@FILE")]
    event: String,
    /// With an event type: the payload, as a JSON object, @FILE, or @-
    #[arg(long, value_name = "JSON|@FILE")]
    payload: Option<String>,
    /// EMAIL, PUSH, SMS, WEBSOCKET or SLACK [default: the inbox]
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Locale [default: the recipient's]
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
    /// Render for this user [default: an example recipient]
    #[arg(long, value_name = "TYPE:ID", conflicts_with = "recipient")]
    user: Option<String>,
    /// Render for an example recipient: a JSON object, @FILE, or @-
    #[arg(long, value_name = "JSON|@FILE")]
    recipient: Option<String>,
    /// Only the HTML
    #[arg(long, conflicts_with = "text")]
    html: bool,
    /// Only title and text
    #[arg(long)]
    text: bool,
    /// Write the HTML to this file
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    out: Option<PathBuf>,
}

impl TemplateCommand {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        match self {
            TemplateCommand::Render(render) => render.run(client, as_json).await,
            TemplateCommand::Load { folder } => {
                let rows = template_folder::read(folder)?;
                let answer = client.put("/v1/templates", &Value::Array(rows)).await?;
                if as_json {
                    say!("{answer}")?;
                } else {
                    say!("{}: {} templates written", folder.display(), answer["written"])?;
                }
                Ok(())
            }
        }
    }
}

impl Render {
    async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let answer = client.post("/v1/templates/preview", &self.request()?).await?;
        let html = answer["html"].as_str();
        if let Some(file) = &self.out {
            let html = html.ok_or_else(|| self.no_html())?;
            std::fs::write(file, html).with_context(|| format!("--out: cannot write {}", file.display()))?;
        }
        if as_json {
            say!("{answer}")?;
        } else if self.html {
            say!("{}", html.ok_or_else(|| self.no_html())?)?;
        } else {
            say!("{}", self.shown(&answer))?;
        }
        Ok(())
    }

    fn request(&self) -> Result<Value, CommandError> {
        let mut request = Map::new();
        request.insert("event".to_owned(), self.event()?);
        if let Some(channel) = &self.channel {
            request.insert("channel".to_owned(), json!(channel.to_uppercase()));
        }
        if let Some(locale) = &self.locale {
            request.insert("locale".to_owned(), json!(locale));
        }
        if let Some(user) = &self.user {
            let Some((user_type, user_id)) = user.split_once(':') else {
                return Err(CommandError::Usage(format!(
                    "--user: `{user}` is not TYPE:ID, such as CUSTOMER:42"
                )));
            };
            request.insert("user".to_owned(), json!({ "user_type": user_type, "user_id": user_id }));
        }
        if let Some(recipient) = &self.recipient {
            request.insert("recipient".to_owned(), read_json("--recipient", recipient)?);
        }
        Ok(Value::Object(request))
    }

    fn event(&self) -> Result<Value, CommandError> {
        if self.event.starts_with(['{', '@']) {
            if self.payload.is_some() {
                let what = "--payload requires an event type; this event already contains its payload";
                return Err(CommandError::Usage(what.to_owned()));
            }
            return read_json("--event", &self.event);
        }
        let payload = self.payload.as_deref().map(read_payload).transpose()?;
        Ok(json!({ "event_type": self.event, "payload": payload.unwrap_or_else(|| json!({})) }))
    }

    fn no_html(&self) -> CommandError {
        let channel = self.channel.as_deref().unwrap_or("the inbox").to_uppercase();
        anyhow!("no template for this event and {channel} has HTML; set `html` with PUT /v1/templates").into()
    }

    fn shown(&self, answer: &Value) -> String {
        let text = |field: &str| answer[field].as_str().unwrap_or_default();
        let words = format!("{}\n\n{}", text("title"), text("body")).trim_end().to_owned();
        if self.text {
            return words;
        }
        let template =
            answer["template"].as_str().unwrap_or("none (the title is derived from the event type)");
        let html = match (answer["html"].as_str(), &self.out) {
            (None, _) => "none".to_owned(),
            (Some(html), None) => {
                format!("{} bytes by {}; see it with --html or --out FILE", html.len(), text("html_template"))
            }
            (Some(_), Some(file)) => format!("by {}, in {}", text("html_template"), file.display()),
        };
        let url = answer["url"].as_str().unwrap_or("none");
        format!(
            "{words}\n\ntemplate: {template}\nlocale:   {}\nhtml:     {html}\nurl:      {url}",
            text("locale")
        )
    }
}
