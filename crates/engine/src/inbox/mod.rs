//! What end users read and change: their preferences. Handlers call these functions with the user whom a token names.

mod preferences;
