//! Who may call the API: keys with scopes for services, tokens for end users, and the record of what operators changed.
//! Verifying signatures and answering HTTP belong to the server.

pub mod api_key;
pub mod audit;
pub mod end_user;
pub mod scope;
