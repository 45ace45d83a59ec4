//! Prepares rows of sends for display: adds the `Message-ID` of an e-mail, and masks addresses that are secrets.

use campanile_channels::Providers;
use campanile_domain::channel::Channel;
use campanile_domain::people::address::webhook;
use campanile_store::{SendRow, Shown};
use serde::Serialize;

/// A send of a list or of a trace, as it is answered.
#[derive(Debug, Serialize)]
pub struct ShownSend<T> {
    #[serde(flatten)]
    send: T,
    /// Of an e-mail that a mail server got. It is derived from the notification's id and the configured sender, as in
    /// every attempt.
    message_id: Option<String>,
}

/// `row` tells where the row of a send is.
pub fn shown<T>(
    providers: &Providers,
    sends: Vec<T>,
    row: impl Fn(&mut T) -> &mut SendRow,
) -> Vec<ShownSend<T>> {
    let shown = |mut send: T| {
        let row = row(&mut send);
        let message_id = message_id(providers, row);
        mask_secret(&row.channel, &mut row.recipient_address);
        ShownSend { send, message_id }
    };
    sends.into_iter().map(shown).collect()
}

fn message_id(providers: &Providers, send: &SendRow) -> Option<String> {
    let key = *send.id.typed()?;
    let links = providers.get(key.channel)?.links();
    let asked = links.iter().find(|link| Some(link.name()) == send.provider.as_deref())?;
    asked.provider.message_id(key)
}

/// Masks an address that is a secret: whoever knows the whole URL of a webhook can post.
pub fn mask_secret(channel: &Shown<Channel>, address: &mut String) {
    if channel.typed().is_none_or(|channel| channel.facts().secret_address) {
        *address = masked(address);
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
        let shown = |channel| {
            let mut address = "https://a.example/b/c".to_owned();
            mask_secret(&Shown::Typed(channel), &mut address);
            address
        };
        assert_eq!(shown(Channel::Slack), "https://a.example/b/***");
        assert_eq!(shown(Channel::Email), "https://a.example/b/c");
    }
}
