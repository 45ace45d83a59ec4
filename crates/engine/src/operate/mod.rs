//! What operators do by hand: replaying dead letters and resolving sends in doubt.

mod replay;
mod resolve;
