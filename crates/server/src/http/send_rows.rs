//! Prepares rows of sends for display: adds the `Message-ID` of an e-mail.

use campanile_channels::Providers;
use campanile_store::SendRow;
use serde::Serialize;
use utoipa::ToSchema;

/// A send of a list or of a trace, as it is answered.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownSend<T> {
    #[serde(flatten)]
    pub send: T,
    /// Of an e-mail that a mail server got. It is derived from the notification's id and the configured sender, as in
    /// every attempt.
    pub message_id: Option<String>,
}

/// `row` tells where the row of a send is.
pub fn shown<T>(providers: &Providers, sends: Vec<T>, row: impl Fn(&T) -> &SendRow) -> Vec<ShownSend<T>> {
    let shown = |send: T| ShownSend { message_id: message_id(providers, row(&send)), send };
    sends.into_iter().map(shown).collect()
}

fn message_id(providers: &Providers, send: &SendRow) -> Option<String> {
    let key = *send.id.typed()?;
    let links = providers.get(key.channel)?.links();
    let asked = links.iter().find(|link| Some(link.name()) == send.provider.as_deref())?;
    asked.provider.message_id(key)
}
