//! The tests of templates (`is …`): MiniJinja's, each with a limit on its arguments and a check of the deadline.
//! Filters such as `select("odd")` also call them, once per item.

use std::sync::LazyLock;

use minijinja::value::Rest;
use minijinja::{Environment, Error, State, Value, tests};

use crate::template::deadline;
use crate::template::filters::Takes;

/// All tests: the environment starts without any.
static TESTS: LazyLock<Vec<(&str, Takes, Value)>> = LazyLock::new(|| {
    use Takes::{Anything, Limited};
    vec![
        ("!=", Limited, Value::from_function(tests::is_ne)),
        ("<", Limited, Value::from_function(tests::is_lt)),
        ("<=", Limited, Value::from_function(tests::is_le)),
        ("==", Limited, Value::from_function(tests::is_eq)),
        (">", Limited, Value::from_function(tests::is_gt)),
        (">=", Limited, Value::from_function(tests::is_ge)),
        ("boolean", Anything, Value::from_function(tests::is_boolean)),
        ("defined", Anything, Value::from_function(tests::is_defined)),
        ("divisibleby", Limited, Value::from_function(tests::is_divisibleby)),
        ("endingwith", Limited, Value::from_function(tests::is_endingwith)),
        ("eq", Limited, Value::from_function(tests::is_eq)),
        ("equalto", Limited, Value::from_function(tests::is_eq)),
        ("escaped", Anything, Value::from_function(tests::is_safe)),
        ("even", Anything, Value::from_function(tests::is_even)),
        ("false", Anything, Value::from_function(tests::is_false)),
        ("float", Anything, Value::from_function(tests::is_float)),
        ("ge", Limited, Value::from_function(tests::is_ge)),
        ("greaterthan", Limited, Value::from_function(tests::is_gt)),
        ("gt", Limited, Value::from_function(tests::is_gt)),
        ("in", Limited, Value::from_function(tests::is_in)),
        ("int", Anything, Value::from_function(tests::is_integer)),
        ("integer", Anything, Value::from_function(tests::is_integer)),
        ("iterable", Anything, Value::from_function(tests::is_iterable)),
        ("le", Limited, Value::from_function(tests::is_le)),
        ("lessthan", Limited, Value::from_function(tests::is_lt)),
        ("lower", Limited, Value::from_function(tests::is_lower)),
        ("lt", Limited, Value::from_function(tests::is_lt)),
        ("mapping", Anything, Value::from_function(tests::is_mapping)),
        ("ne", Limited, Value::from_function(tests::is_ne)),
        ("none", Anything, Value::from_function(tests::is_none)),
        ("number", Anything, Value::from_function(tests::is_number)),
        ("odd", Anything, Value::from_function(tests::is_odd)),
        ("safe", Anything, Value::from_function(tests::is_safe)),
        ("sameas", Limited, Value::from_function(tests::is_sameas)),
        ("sequence", Anything, Value::from_function(tests::is_sequence)),
        ("startingwith", Limited, Value::from_function(tests::is_startingwith)),
        ("string", Anything, Value::from_function(tests::is_string)),
        ("true", Anything, Value::from_function(tests::is_true)),
        ("undefined", Anything, Value::from_function(tests::is_undefined)),
        ("upper", Limited, Value::from_function(tests::is_upper)),
    ]
});

pub fn add(environment: &mut Environment<'_>) {
    for (name, takes, test) in TESTS.iter() {
        environment.add_test(*name, move |state: &mut State, given: Rest<Value>| {
            deadline::check()?;
            takes.check(&given)?;
            Ok::<_, Error>(test.call(state, &given)?.is_true())
        });
    }
}

pub fn is_known(name: &str) -> bool {
    TESTS.iter().any(|(known, ..)| *known == name)
}
