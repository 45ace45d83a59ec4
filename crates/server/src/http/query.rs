//! Query parameters: unknown ones are refused, and errors name the parameter.

use std::collections::HashMap;

use super::Problem;

const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 100;

/// The parameters that have not been taken; what remains at the end is unknown.
#[derive(Debug)]
pub struct Query(HashMap<String, String>);

impl Query {
    /// Refuses NUL: no stored text contains it, and PostgreSQL refuses it even in a search.
    pub fn new(given: HashMap<String, String>) -> Result<Self, Problem> {
        match given.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(Problem::bad_query(format!("{name}: must not contain NUL"))),
            None => Ok(Query(given)),
        }
    }

    pub fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub fn take_number(&mut self, name: &str) -> Result<Option<i64>, Problem> {
        let number = |text: String| {
            text.parse().map_err(|_| Problem::bad_query(format!("{name}: `{text}` is not a whole number")))
        };
        self.take(name).map(number).transpose()
    }

    pub fn take_limit(&mut self) -> Result<usize, Problem> {
        let limit = self.take_number("limit")?.map_or(Ok(DEFAULT_LIMIT), usize::try_from);
        match limit {
            Ok(limit @ 1..=MAX_LIMIT) => Ok(limit),
            _ => Err(Problem::bad_query(format!("limit: must lie between 1 and {MAX_LIMIT}"))),
        }
    }

    /// Checks that no parameter remains.
    pub fn end(self, known: &str) -> Result<(), Problem> {
        match self.0.keys().min() {
            None => Ok(()),
            Some(unknown) => {
                Err(Problem::bad_query(format!("unknown parameter `{unknown}`: known are {known}")))
            }
        }
    }
}
