//! Where templates and `when` run: one environment with its limits, and which filters and tests it has.

use std::io;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};

use super::failure::describe;
use super::tags::{self, TagKind, Token};
use super::{bounds, filters, localized};

const FUEL: u64 = 100_000;
/// Loops in loops; a stack is not endless.
const MAX_DEPTH: usize = 50;

pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| {
        if name.ends_with("/html") { AutoEscape::Html } else { AutoEscape::None }
    });
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_debug(true);
    filters::add(&mut environment);
    localized::add(&mut environment);
    environment
}

#[derive(Debug)]
pub struct Bounded {
    pub text: Vec<u8>,
    pub limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// MiniJinja looks for a filter when it is used; a misspelt one is told to who writes it, not to who should have got a mail.
pub fn check_filters(environment: &Environment<'_>, source: &str) -> Result<(), String> {
    for tag in tags::tags(source).iter().filter(|tag| tag.kind != TagKind::Comment) {
        check_names(environment, tag.inner)
            .map_err(|error| format!("line {}: {error}", tags::line_of(source, tag.start)))?;
    }
    Ok(())
}

/// Where `when` runs. What an event lacks is undefined, and equal to nothing.
pub fn conditions() -> Environment<'static> {
    let mut environment = environment();
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment
}

/// Whether an expression may be used as `when`.
pub fn check_condition(source: &str) -> Result<(), String> {
    bounds::check_expression(source)?;
    let environment = conditions();
    environment.compile_expression(source).map_err(|error| describe(&error))?;
    check_names(&environment, source)
}

/// Whether every filter and test that stands in an expression is known.
fn check_names(environment: &Environment<'_>, inner: &str) -> Result<(), String> {
    let known = |kind: &str, name: &str| {
        let asked =
            environment.compile_expression(if kind == "filter" { "name is filter" } else { "name is test" });
        asked.and_then(|asked| asked.eval(context! { name })).is_ok_and(|known| known.is_true())
    };
    let tokens = tags::tokens(inner);
    for (at, token) in tokens.iter().enumerate() {
        let next = |ahead: usize| match tokens.get(at + ahead) {
            Some(Token::Name(name)) => Some(*name),
            _ => None,
        };
        let (kind, name) = match token {
            Token::Sign("|") => ("filter", next(1)),
            Token::Name("is") if at > 0 && tokens[at - 1] != Token::Sign(".") => {
                ("test", next(if next(1) == Some("not") { 2 } else { 1 }))
            }
            _ => continue,
        };
        if let Some(name) = name.filter(|name| !known(kind, name)) {
            return Err(format!("there is no {kind} `{name}`"));
        }
    }
    Ok(())
}
