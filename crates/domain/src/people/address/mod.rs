//! Addresses of recipients. The same checks run when a row is written and when something is sent, because rows of views
//! and rows written by SQL were never checked before. Error texts never contain the address.

mod entry;
mod mailbox;
mod phone;
mod webhook;

pub use entry::{Addresses, Entry};
pub use mailbox::{InvalidMailbox, Mailbox};
pub use phone::{e164, is_e164};
pub use webhook::{is_this_machine, webhook};

/// What stands in the place of a hidden text, such as the secret part of a webhook.
pub const MASK: &str = "***";

/// FCM tokens have about 200 characters; this allows for longer ones.
const MAX_TOKEN_BYTES: usize = 4_096;

/// Whether the text may be a device's registration token.
pub fn is_push_token(text: &str) -> bool {
    (1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
