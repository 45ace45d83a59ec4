//! The errors, by what the caller does next.

use std::error::Error as StdError;
use std::fmt;

#[derive(Debug)]
pub enum Error {
    /// The event is invalid: correct the code that creates it. Nothing was sent to the database.
    Invalid {
        /// The column that the value was for.
        field: &'static str,
        why: String,
    },
    /// The driver's own error. On PostgreSQL the transaction can then only be rolled back, entirely or to a savepoint.
    Database(Box<dyn StdError + Send + Sync>),
}

impl Error {
    pub(crate) fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Error::Invalid { field, why: why.into() }
    }

    #[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "rusqlite"))]
    pub(crate) fn database(error: impl StdError + Send + Sync + 'static) -> Self {
        Error::Database(Box::new(error))
    }
}

/// Drivers are brief ("db error") and put the details into causes, so these are printed, too.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid { field, why } => write!(f, "{field} {why}"),
            Error::Database(error) => {
                write!(f, "the database rejected the event: {error}")?;
                let mut told = error.to_string();
                let mut cause = error.source();
                while let Some(error) = cause {
                    let text = error.to_string();
                    if !told.contains(&text) {
                        write!(f, ": {text}")?;
                        told = text;
                    }
                    cause = error.source();
                }
                Ok(())
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Invalid { .. } => None,
            Error::Database(error) => Some(&**error),
        }
    }
}
