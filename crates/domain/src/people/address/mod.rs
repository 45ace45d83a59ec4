//! Addresses that can be sent to. Rows are checked by the same rules when they are written and when something is sent
//! to them, since rows of a view, and those that SQL wrote, were never checked before. No reason shows any of the
//! address.

mod mailbox;
mod phone;
mod webhook;

pub use mailbox::{InvalidMailbox, Mailbox};
pub use phone::{e164, is_e164};
pub use webhook::{is_this_machine, webhook};

/// FCM's tokens have some 200 characters.
const MAX_TOKEN_BYTES: usize = 4_096;

/// Whether it may be the registration token of a device.
pub fn is_push_token(text: &str) -> bool {
    (1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
