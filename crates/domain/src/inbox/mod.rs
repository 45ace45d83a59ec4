//! What end users see and choose in their inbox.

pub mod preferences;
