//! The errors of the store. The text of an error is complete, and the underlying errors are kept as its sources.

use std::error::Error;
use std::fmt;

/// The error of a driver, of the file system or of a parser. Text alone, if there is no underlying error.
pub type Source = Box<dyn Error + Send + Sync>;

/// Variants are named by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The infrastructure failed: back off and try again. Never counts as a failure of a row.
    #[error("the database is not available: {0}")]
    Unavailable(#[source] Source),
    /// Another instance was faster: stop this work.
    #[error("the work was taken over: {0}")]
    Lost(#[source] Source),
    /// The data was refused: bisect, and count the failure of the faulty row.
    #[error("the database refused the data: {0}")]
    Refused(#[source] Source),
    /// The rows belong to another system: change them there.
    #[error("{0}")]
    ReadOnly(#[source] Source),
    /// The database can't be used as it is: tell the operator.
    #[error("{0}")]
    Unusable(#[source] Source),
}

/// An error with its own complete text, and the error that caused it.
#[derive(Debug)]
struct Explained {
    text: String,
    source: Source,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Wraps an error and replaces its text.
pub(crate) fn explained(text: String, source: impl Into<Source>) -> Source {
    Box::new(Explained { text, source: source.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_tells_everything_and_the_sources_are_kept() {
        let io = std::io::Error::other("no space left");
        let error = StoreError::Unusable(explained(format!("can't create x: {io}"), io));
        assert_eq!(error.to_string(), "can't create x: no space left");
        let below = error.source().and_then(Error::source).unwrap();
        assert!(below.is::<std::io::Error>());
        assert!(StoreError::Lost("it is gone".into()).source().unwrap().source().is_none());
    }
}
