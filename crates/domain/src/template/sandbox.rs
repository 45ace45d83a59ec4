//! The environments of templates and of `when`, with their limits, filters and tests.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value};

use super::{bounds, deadline, filters, predicates};
use crate::template::checkpoints::{IN_TIME, MARK};
use crate::template::deadline::Deadline;
use crate::template::escape::Escaped;
use crate::template::failure::describe;
use crate::template::tags::{self, TagKind, Token};

const FUEL: u64 = 100_000;
/// Limits recursion, such as loops in loops, because the stack is finite.
const MAX_DEPTH: usize = 50;

pub fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| {
        if name.ends_with("/html") { AutoEscape::Html } else { AutoEscape::None }
    });
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_debug(true);
    environment.set_formatter(write_value);
    filters::add(&mut environment);
    predicates::add(&mut environment);
    environment.add_function(IN_TIME, || deadline::check().map(|()| true));
    environment
}

/// Writes the value of `{{ … }}`.
fn write_value(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    deadline::check()?;
    let written = match (state.auto_escape(), value.as_str()) {
        (AutoEscape::None, _) => write!(output, "{value}"),
        (_, Some(text)) if value.is_safe() => output.write_str(text),
        (_, Some(text)) => write!(output, "{}", Escaped(text)),
        (_, None) => write!(output, "{}", Escaped(&filters::text_of(value)?)),
    };
    written.map_err(Error::from)
}

/// An output with a limit on its size, which checks the deadline.
#[derive(Debug)]
pub struct Bounded {
    pub text: Vec<u8>,
    limit: usize,
    pub too_late: bool,
}

impl Bounded {
    pub fn new(text: Vec<u8>, limit: usize) -> Self {
        Bounded { text, limit, too_late: false }
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if deadline::is_over() {
            self.too_late = true;
            return Err(io::ErrorKind::TimedOut.into());
        }
        for part in bytes.split(|byte| *byte == MARK) {
            if self.text.len() + part.len() > self.limit {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.text.extend_from_slice(part);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks the names of filters. MiniJinja looks a filter up only when it is used; this reports a misspelt one to the
/// author instead.
pub fn check_filters(source: &str) -> Result<(), String> {
    for tag in tags::tags(source).iter().filter(|tag| tag.kind != TagKind::Comment) {
        check_names(tag.inner)
            .map_err(|error| format!("line {}: {error}", tags::line_of(source, tag.start)))?;
    }
    Ok(())
}

/// The environment of `when`. Missing fields are undefined and equal to nothing.
pub fn conditions() -> Environment<'static> {
    let mut environment = environment();
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment
}

/// Checks whether an expression can be used as `when`.
pub fn check_condition(source: &str) -> Result<(), String> {
    bounds::check_expression(source)?;
    conditions().compile_expression(source).map_err(|error| describe(&error))?;
    check_names(source)
}

/// Evaluates an expression for an event. Limits are checked here, too, because rows written by SQL were never checked.
pub fn holds(conditions: &Environment<'_>, when: &str, document: &serde_json::Value) -> Result<bool, String> {
    bounds::check_expression(when)?;
    let _deadline = Deadline::begin();
    let evaluated = catch_unwind(AssertUnwindSafe(|| {
        conditions.compile_expression(when)?.eval(Value::from(Serde(document)))
    }));
    match evaluated {
        Ok(Ok(value)) => Ok(value.is_true()),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err("evaluating it panicked".to_owned()),
    }
}

/// Checks that every filter and test in an expression exists, also those that are named in a text argument.
fn check_names(inner: &str) -> Result<(), String> {
    let tokens = tags::tokens(inner);
    for (at, token) in tokens.iter().enumerate() {
        let next = |offset: usize| match tokens.get(at + offset) {
            Some(Token::Name(name)) => Some(*name),
            _ => None,
        };
        let filter = next(1).filter(|_| *token == Token::Sign("|"));
        if let Some(name) = filter.filter(|name| !filters::is_known(name)) {
            return Err(format!("there is no filter `{name}`"));
        }
        let is = *token == Token::Name("is") && at > 0 && tokens[at - 1] != Token::Sign(".");
        let behind_is = if is { next(if next(1) == Some("not") { 2 } else { 1 }) } else { None };
        let test = behind_is.or_else(|| test_in_text(filter?, &tokens[at + 2..]));
        if let Some(name) = test.filter(|name| !predicates::is_known(name)) {
            return Err(format!("there is no test `{name}`"));
        }
    }
    Ok(())
}

/// The test that a filter names as a text: `select("odd")`, `selectattr("price", "gt", 5)`.
fn test_in_text<'a>(filter: &str, behind: &[Token<'a>]) -> Option<&'a str> {
    match (filter, behind) {
        ("select" | "reject", [Token::Sign("("), Token::Text(test), Token::Sign("," | ")"), ..])
        | (
            "selectattr" | "rejectattr",
            [
                Token::Sign("("),
                Token::Text(_),
                Token::Sign(","),
                Token::Text(test),
                Token::Sign("," | ")"),
                ..,
            ],
        ) => Some(test),
        _ => None,
    }
}
