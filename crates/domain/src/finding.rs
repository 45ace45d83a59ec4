//! What somebody found who looked whether a part is well. Each part is examined by the crate that knows it.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// The part, in a word or two.
    pub subject: &'static str,
    /// What was found, as a sentence for people; never a secret.
    pub what: String,
    /// What to do about it. Whatever is wrong has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing; it works nevertheless.
    Note,
    /// It will not work, or not be safe.
    Wrong,
}

impl Finding {
    pub fn ok(subject: &'static str, what: impl Into<String>) -> Self {
        Finding { level: Level::Ok, subject, what: what.into(), remedy: None }
    }

    pub fn note(subject: &'static str, what: impl Into<String>) -> Self {
        Finding { level: Level::Note, subject, what: what.into(), remedy: None }
    }

    pub fn wrong(subject: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { level: Level::Wrong, subject, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// For a note that somebody may want to do something about.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}
