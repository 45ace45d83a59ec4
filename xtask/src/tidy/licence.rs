//! Checks whether a package's licence permits shipping it. It reads SPDX expressions such as `(MIT OR Apache-2.0) AND
//! Unicode-3.0`.
//!
//! Exceptions (`WITH`) only ever permit more, so the licence before them decides.

use anyhow::{Result, bail, ensure};

const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether there is a choice among the offered licences for which all that apply are allowed.
pub fn is_allowed(expression: &str) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let allowed = any_of(&mut words)?;
    ensure!(words.is_empty(), "`{}` is too much", words[words.len() - 1]);
    Ok(allowed)
}

/// `words` is a stack: the next word is the last element.
fn any_of(words: &mut Vec<&str>) -> Result<bool> {
    let mut allowed = all_of(words)?;
    while take(words, "OR") {
        allowed |= all_of(words)?;
    }
    Ok(allowed)
}

fn all_of(words: &mut Vec<&str>) -> Result<bool> {
    let mut allowed = one(words)?;
    while take(words, "AND") {
        allowed &= one(words)?;
    }
    Ok(allowed)
}

fn one(words: &mut Vec<&str>) -> Result<bool> {
    if take(words, "(") {
        let allowed = any_of(words)?;
        ensure!(take(words, ")"), "a parenthesis is not closed");
        return Ok(allowed);
    }
    let licence = name(words)?;
    if take(words, "WITH") {
        name(words)?;
    }
    Ok(ALLOWED.contains(&licence))
}

fn name<'a>(words: &mut Vec<&'a str>) -> Result<&'a str> {
    match words.pop() {
        None => bail!("it ends where a licence should follow"),
        Some(word @ ("OR" | "AND" | "WITH" | "(" | ")")) => bail!("`{word}` stands where a licence should"),
        Some(word) => Ok(word),
    }
}

fn take(words: &mut Vec<&str>, wanted: &str) -> bool {
    words.pop_if(|word| *word == wanted).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_is_enough() {
        for expression in ["MIT", "MIT OR GPL-3.0", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "GPL-2.0 / MIT"] {
            assert!(is_allowed(expression).unwrap(), "{expression}");
        }
        for expression in ["GPL-3.0", "AGPL-3.0-only OR SSPL-1.0", "MITX", "mit"] {
            assert!(!is_allowed(expression).unwrap(), "{expression}");
        }
    }

    #[test]
    fn what_applies_together_must_be_allowed_together() {
        assert!(is_allowed("MIT AND BSD-3-Clause").unwrap());
        assert!(!is_allowed("MIT AND GPL-3.0").unwrap());
    }

    #[test]
    fn and_binds_closer_than_or_and_parentheses_closer_than_both() {
        assert!(is_allowed("MIT OR GPL-3.0 AND GPL-2.0").unwrap());
        assert!(!is_allowed("(MIT OR GPL-3.0) AND GPL-2.0").unwrap());
        assert!(is_allowed("(GPL-3.0 OR (MIT)) AND Unicode-3.0").unwrap());
    }

    #[test]
    fn exceptions_do_not_change_the_answer() {
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception").unwrap());
        assert!(!is_allowed("GPL-2.0 WITH Classpath-exception-2.0").unwrap());
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for expression in
            ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "()", "MIT WITH OR ISC"]
        {
            assert!(is_allowed(expression).is_err(), "{expression}");
        }
    }
}
