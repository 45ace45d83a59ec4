//! Prepares rows of sends for display: adds the `Message-ID` of an e-mail, and masks addresses that are secrets.

use campanile_channels::Providers;
use campanile_domain::channel::Channel;
use campanile_domain::id::SendKey;
use campanile_domain::people::address::webhook;
use campanile_store::JsonRow;
use serde_json::{Value, json};

/// Adds `message_id` to each e-mail that a mail server got. It is derived from the notification's id and the configured
/// sender, as in every attempt.
pub fn show(providers: &Providers, sends: &mut [JsonRow]) {
    for send in sends.iter_mut() {
        let message_id = message_id(providers, send);
        send.insert("message_id".to_owned(), json!(message_id));
    }
    mask_secrets("recipient_address", sends);
}

fn message_id(providers: &Providers, send: &JsonRow) -> Option<String> {
    let text = |column: &str| send.get(column).and_then(Value::as_str);
    let key: SendKey = text("id")?.parse().ok()?;
    let links = providers.get(key.channel)?.links();
    let asked = links.iter().find(|link| Some(link.name()) == text("provider"))?;
    asked.provider.message_id(key)
}

/// Masks addresses that are secrets: whoever knows the whole URL of a webhook can post.
pub fn mask_secrets(column: &str, rows: &mut [JsonRow]) {
    for row in rows {
        let channel =
            row.get("channel").and_then(Value::as_str).and_then(|name| name.parse::<Channel>().ok());
        let is_secret = channel.is_some_and(|channel| channel.facts().secret_address);
        if let Some(Value::String(address)) = row.get_mut(column).filter(|_| is_secret) {
            *address = masked(address);
        }
    }
}

/// Of a webhook, the host and the first part of the path; of anything else, nothing.
fn masked(address: &str) -> String {
    const MASK: &str = "***";
    let Ok(url) = webhook(address) else { return MASK.to_owned() };
    let first = url.path_segments().and_then(|mut parts| parts.next().map(str::to_owned));
    let origin = url.origin().ascii_serialization();
    match first.filter(|first| url.path().len() > first.len() + 1) {
        Some(first) => format!("{origin}/{first}/{MASK}"),
        None => format!("{origin}/{MASK}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_shows_where_it_leads_and_no_more() {
        for (address, shown) in [
            ("https://hooks.slack.com/services/T0/B0/secret", "https://hooks.slack.com/services/***"),
            ("http://127.0.0.1:8080/services/T0?key=secret", "http://127.0.0.1:8080/services/***"),
            ("https://chat.example/secret", "https://chat.example/***"),
            ("https://chat.example?secret", "https://chat.example/***"),
            ("hooks.slack.com/secret", "***"),
        ] {
            assert_eq!(masked(address), shown);
        }
        let row = |channel: &str| {
            let row = json!({"channel": channel, "recipient_address": "https://a.example/b/c"});
            row.as_object().unwrap().clone()
        };
        let mut rows = [row("SLACK"), row("EMAIL")];
        mask_secrets("recipient_address", &mut rows);
        assert_eq!(
            rows.map(|row| row["recipient_address"].clone()),
            ["https://a.example/b/***", "https://a.example/b/c"]
        );
    }
}
