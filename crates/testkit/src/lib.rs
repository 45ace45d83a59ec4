//! What tests of several crates share. It knows nothing of Campanile, and Campanile depends on it in tests only.

mod back_end;
pub mod certificate;
mod full_listener;
pub mod log;
pub mod provider;
pub mod proxy;
pub mod token;
mod until;

pub use back_end::Backend;
pub use full_listener::FullListener;
pub use until::{until, until_ok, within};
