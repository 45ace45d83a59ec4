//! The result of examining one part of the installation, as `doctor` shows it. Each part is examined by the crate that
//! knows it.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// The examined part, in a word or two.
    pub subject: &'static str,
    /// The result, as a sentence for people. It never contains a secret.
    pub what: String,
    /// What to do about it. Every `Wrong` finding has a remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing, but the part works.
    Note,
    /// The part will not work or is not safe.
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

    /// Adds a remedy to a note.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}
