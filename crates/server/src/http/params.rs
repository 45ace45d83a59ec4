//! Query parameters as types, which also describe them in the API's document. Unknown parameters are refused, and
//! errors name the parameter.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use url::form_urlencoded;
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, ToSchema};

use super::Problem;

const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 100;

/// The query parameters of a request.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned + IntoParams, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Params)
    }
}

fn parse<T: DeserializeOwned + IntoParams>(query: &str) -> Result<T, Problem> {
    let described = T::into_params(|| Some(ParameterIn::Query));
    let known: Vec<&str> = described.iter().map(|parameter| parameter.name.as_str()).collect();
    let mut given = BTreeSet::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !known.contains(&name.as_ref()) {
            let name: String = name.chars().take(100).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Problem::bad_query(format!("unknown parameter `{name}`: known are {known}")));
        }
        // No stored text contains NUL, and PostgreSQL refuses it even in a search.
        if value.contains('\0') {
            return Err(Problem::bad_query(format!("{name}: must not contain NUL")));
        }
        if !given.insert(name.clone()) {
            return Err(Problem::bad_query(format!("{name}: is given more than once")));
        }
    }
    let values = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(values).map_err(|error| {
        let detail = error.inner().to_string();
        match detail.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
            Some(missing) => {
                Problem::bad_query(format!("{missing} is missing; needed are {}", known.join(", ")))
            }
            None => Problem::bad_query(format!("{}: {detail}", error.path())),
        }
    })
}

/// The id in a path.
#[derive(Debug)]
pub struct PathId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        id.map(|Path(id)| PathId(id)).map_err(|_| Problem::not_found("the id in the path is not valid UTF-8"))
    }
}

/// The most items of a page: 1 to 1,000.
#[derive(Debug, Clone, Copy)]
pub struct Limit(pub usize);

impl Default for Limit {
    fn default() -> Self {
        Limit(DEFAULT_LIMIT)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse() {
            Ok(limit @ 1..=MAX_LIMIT) => Ok(Limit(limit)),
            _ => Err(D::Error::custom(format!("`{text}` is not a whole number between 1 and {MAX_LIMIT}"))),
        }
    }
}

/// Reads a value by its text form, if it is given. The error is that of the type.
pub fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// A whole number, such as the cursor of a list that is ordered by id.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| D::Error::custom(format!("`{text}` is not a whole number")))
}

/// `true` or `false`.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(D::Error::custom(format!("`{other}` is neither `true` nor `false`"))),
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page. Null at the end of the list. Fewer items than the limit do not mean that it ends.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A page that may be followed by another if it is full.
    pub fn full(items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> i64) -> Self {
        let next = items.last().filter(|_| items.len() == limit).map(|last| cursor(last).to_string());
        Page { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, IntoParams)]
    #[into_params(parameter_in = Query)]
    struct Given {
        name: Option<String>,
        #[serde(default, deserialize_with = "flag")]
        active: bool,
        #[serde(default, deserialize_with = "number")]
        cursor: Option<i64>,
        #[serde(default)]
        #[param(value_type = Option<u32>)]
        limit: Limit,
    }

    fn given(query: &str) -> Result<Given, String> {
        parse(query).map_err(|problem| serde_json::to_value(problem).unwrap()["detail"].to_string())
    }

    #[test]
    fn parameters_are_read_into_their_types() {
        let Given { name, active, cursor, limit } =
            given("name=a%20b&active=true&cursor=-7&limit=1000").unwrap();
        assert_eq!((name.as_deref(), active, cursor, limit.0), (Some("a b"), true, Some(-7), 1_000));
        let Given { name, active, cursor, limit } = given("").unwrap();
        assert_eq!((name, active, cursor, limit.0), (None, false, None, 100));
    }

    #[test]
    fn errors_name_the_parameter_and_say_what_would_be_right() {
        for (query, says) in [
            ("colour=red", "unknown parameter `colour`: known are name, active, cursor, limit"),
            ("name=a%00b", "name: must not contain NUL"),
            ("name=a&name=b", "name: is given more than once"),
            ("active=1", "active: `1` is neither `true` nor `false`"),
            ("cursor=x", "cursor: `x` is not a whole number"),
            ("limit=0", "limit: `0` is not a whole number between 1 and 1000"),
            ("limit=x", "limit: `x` is not a whole number between 1 and 1000"),
        ] {
            assert_eq!(given(query).unwrap_err(), format!("\"{says}\""));
        }
    }
}
