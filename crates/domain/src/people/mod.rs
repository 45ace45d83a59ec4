//! People: recipients, the kinds of users, and the addresses that they are reached at.

pub mod address;
pub mod recipient;
pub mod user_type;
