//! Limits on the size of values in templates, which MiniJinja's fuel does not give. Fuel counts steps, and one step can
//! double a text: thirty `{% set a = a ~ a %}` are few steps and a gigabyte.
//!
//! So each source is checked before it is used. Every value gets a weight: the number of values that it combines,
//! multiplied by the weights of these. The filters limit their results, too ([`crate::template::filters`]). Together,
//! no value is larger than [`MAX_WEIGHT`] times the limit of a filter's result. All values that are kept at once are no
//! larger than [`MAX_KEPT_WEIGHT`] times that limit.

use std::collections::HashMap;

use crate::template::tags::{Tag, TagKind, Token, line_of, tags, tokens};

/// The most values that one value may combine, by `~`, by `+`, or as items of a list or mapping.
const MAX_WEIGHT: usize = 64;
/// The same inside a loop. There, values are combined again on each turn, so their size costs time.
const MAX_WEIGHT_IN_LOOP: usize = 16;
/// The largest sum of the weights that `set`, `with` and `for` keep. Thousands of small values may be kept, but few
/// large ones.
const MAX_KEPT_WEIGHT: usize = 400;
/// The most comparisons, `in` and slices of a tag, multiplied by the weight of their operands. Each may visit every
/// item of a payload, which takes milliseconds without a check of the deadline.
const MAX_LOOKS: usize = 32;
const MAX_FILTERS: usize = 12;
/// MiniJinja adds up to 32 lists without copying them. With more it copies, and a list of numbers is short as text but
/// large in memory.
const MAX_SUMMANDS: usize = 16;
/// MiniJinja parses tags and blocks recursively, so deep nesting would overflow the stack.
const MAX_TOKENS: usize = 400;
/// A text literal in a tag is a value, too.
const MAX_TAG_BYTES: usize = 8 * 1024;
const MAX_DEPTH: usize = 40;

pub fn check(source: &str) -> Result<(), String> {
    let tags = tags(source);
    check_depth(source, &tags)?;
    let mut tally = Tally::default();
    for tag in tags.iter().filter(|tag| tag.kind != TagKind::Comment) {
        check_tag(tag, &mut tally).map_err(|what| format!("line {}: {what}", line_of(source, tag.start)))?;
    }
    Ok(())
}

/// The same check for a single expression, such as `when`.
pub fn check_expression(source: &str) -> Result<(), String> {
    check_tokens(TagKind::Output, source, &mut Tally::default())
}

/// The weights after the tags so far.
#[derive(Debug, Default)]
struct Tally<'a> {
    weights: HashMap<&'a str, usize>,
    kept: usize,
    open_loops: usize,
}

/// Limits the nesting of blocks. Each `elif` counts as one level, because it is parsed as a block inside the one
/// before.
fn check_depth(source: &str, tags: &[Tag<'_>]) -> Result<(), String> {
    let mut open: Vec<usize> = Vec::new();
    for tag in tags.iter().filter(|tag| tag.kind == TagKind::Statement) {
        let keyword = tag.inner.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        match (keyword, open.last_mut()) {
            ("if" | "for" | "with" | "autoescape", _) => open.push(1),
            ("elif", Some(last)) => *last += 1,
            (other, _) if other.starts_with("end") && other != "endraw" => drop(open.pop()),
            _ => {}
        }
        if open.iter().sum::<usize>() > MAX_DEPTH {
            let line = line_of(source, tag.start);
            return Err(format!("line {line}: more than {MAX_DEPTH} blocks inside each other"));
        }
    }
    Ok(())
}

fn check_tag<'a>(tag: &Tag<'a>, tally: &mut Tally<'a>) -> Result<(), String> {
    check_tokens(tag.kind, tag.inner, tally)
}

fn check_tokens<'a>(kind: TagKind, inner: &'a str, tally: &mut Tally<'a>) -> Result<(), String> {
    if inner.len() > MAX_TAG_BYTES {
        return Err(format!("one tag has more than {MAX_TAG_BYTES} bytes: use several tags"));
    }
    let tokens = tokens(inner);
    if tokens.len() > MAX_TOKENS {
        return Err(format!("one tag has more than {MAX_TOKENS} tokens: use several tags"));
    }
    let keyword = match (kind, tokens.first()) {
        (TagKind::Statement, Some(Token::Name(name))) => *name,
        _ => "",
    };
    if tokens.iter().any(|token| matches!(token, Token::Sign("*" | "**"))) {
        return Err("`*` is not supported; use `| times(3)`".to_owned());
    }
    if tokens.iter().filter(|token| **token == Token::Sign("|")).count() > MAX_FILTERS {
        return Err(format!("one tag has more than {MAX_FILTERS} filters: use several tags"));
    }
    if tokens.iter().filter(|token| **token == Token::Sign("+")).count() >= MAX_SUMMANDS {
        return Err(format!("one tag adds more than {MAX_SUMMANDS} values: use `sum`, or several tags"));
    }
    if has_step(&tokens) {
        return Err("slices with a step are not supported; use `| reverse`".to_owned());
    }
    match keyword {
        "filter" => Err("`{% filter %}` is not supported; apply the filter to the value".to_owned()),
        "set" if !tokens.contains(&Token::Sign("=")) => {
            Err("`{% set %}` needs a value: `{% set name = value %}`; a block cannot be assigned".to_owned())
        }
        "for" if tokens.contains(&Token::Name("recursive")) => {
            Err("a loop can't be recursive: write one loop for each level".to_owned())
        }
        "set" | "with" | "for" => {
            let (targets, values) = parted(keyword, &tokens);
            tally.keep(targets, values)?;
            tally.open_loops += usize::from(keyword == "for");
            Ok(())
        }
        "endfor" => {
            tally.open_loops = tally.open_loops.saturating_sub(1);
            Ok(())
        }
        _ => tally.weigh(&tokens).map(drop),
    }
}

impl<'a> Tally<'a> {
    fn keep(&mut self, targets: Vec<&'a str>, values: &[Token<'a>]) -> Result<(), String> {
        let weight = self.weigh(values)?;
        for name in targets {
            let known = self.weights.entry(name).or_default();
            *known = weight.max(*known);
        }
        if makes_something(values) {
            self.kept += weight;
        }
        if self.kept > MAX_KEPT_WEIGHT {
            return Err(format!(
                "variables set up to here combine more than {MAX_KEPT_WEIGHT} values; use fewer `set`, `with` and `for`"
            ));
        }
        Ok(())
    }

    fn weigh(&self, tokens: &[Token<'_>]) -> Result<usize, String> {
        // Literals are no larger than the source itself.
        if !tokens.iter().any(|token| matches!(token, Token::Name(_))) {
            return Ok(1);
        }
        let heaviest = names(tokens).filter_map(|name| self.weights.get(name)).max().copied().unwrap_or(1);
        let weight = heaviest.saturating_mul(joints(tokens) + 1);
        let (limit, place) =
            if self.open_loops > 0 { (MAX_WEIGHT_IN_LOOP, "in a loop ") } else { (MAX_WEIGHT, "") };
        if weight > limit {
            return Err(format!(
                "this expression {place}combines more than {limit} values, nested ones included; \
                 split it into several tags"
            ));
        }
        if looks(tokens).saturating_mul(weight) > MAX_LOOKS {
            return Err(format!(
                "one tag compares or slices more than {MAX_LOOKS} values, nested ones included; use several tags"
            ));
        }
        Ok(weight)
    }
}

/// Whether the tag creates a new value, and not only another name for an existing one.
fn makes_something(values: &[Token<'_>]) -> bool {
    let only_names = |token: &Token<'_>| match token {
        Token::Name(_) | Token::Text(_) | Token::Number => true,
        Token::Sign(sign) => matches!(*sign, "." | "=" | ","),
    };
    !values.iter().all(only_names)
}

/// Splits a tag into the names that it assigns and the tokens of their values.
fn parted<'t, 'a>(keyword: &str, tokens: &'t [Token<'a>]) -> (Vec<&'a str>, &'t [Token<'a>]) {
    let end = match keyword {
        "for" => tokens.iter().position(|token| *token == Token::Name("in")),
        "set" => tokens.iter().position(|token| *token == Token::Sign("=")),
        _ => None,
    };
    let target = |token: &Token<'a>| match token {
        Token::Name(name) => Some(*name),
        Token::Text(_) | Token::Number | Token::Sign(_) => None,
    };
    let Some(end) = end else {
        // `with` assigns several names, each before its value. Taking a target for a value only makes the limit
        // stricter.
        let given = tokens.windows(2).filter(|pair| pair[1] == Token::Sign("="));
        return (given.filter_map(|pair| target(&pair[0])).collect(), tokens);
    };
    let (targets, values) = tokens.split_at(end);
    (targets.iter().skip(1).filter_map(target).collect(), values)
}

/// Names that stand for values; names after a dot or a bar do not.
fn names<'t, 'a: 't>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'a str> + 't {
    tokens.iter().enumerate().filter_map(|(at, token)| match token {
        Token::Name(name) if at == 0 || !matches!(tokens[at - 1], Token::Sign("." | "|")) => Some(*name),
        _ => None,
    })
}

/// Whether there is a slice with a step: `list[1:9:2]`, but not `{'a': 1, 'b': 2}`.
fn has_step(tokens: &[Token<'_>]) -> bool {
    let mut colons = Vec::new();
    for token in tokens {
        match token {
            Token::Sign("[") => colons.push(Some(0)),
            Token::Sign("(" | "{") => colons.push(None),
            Token::Sign(")" | "]" | "}") => drop(colons.pop()),
            Token::Sign(":") => {
                if let Some(Some(count)) = colons.last_mut() {
                    *count += 1;
                    if *count > 1 {
                        return true;
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// How many operations visit a whole value. Comparing anything with a literal is fast and does not count.
fn looks(tokens: &[Token<'_>]) -> usize {
    let is_plain = |token: Option<&Token<'_>>| matches!(token, Some(Token::Text(_) | Token::Number));
    let compares = |(at, token): &(usize, &Token<'_>)| match token {
        Token::Sign("==" | "!=" | "<" | "<=" | ">" | ">=") => {
            !is_plain(tokens.get(at + 1))
                && !is_plain(at.checked_sub(1).and_then(|before| tokens.get(before)))
        }
        Token::Name("in") => {
            let mut list = tokens[at + 1..].iter();
            let plain = |token: &Token<'_>| is_plain(Some(token)) || *token == Token::Sign(",");
            list.next() != Some(&Token::Sign("["))
                || list.find(|token| !plain(token)) != Some(&Token::Sign("]"))
        }
        _ => false,
    };
    tokens.iter().enumerate().filter(compares).count() + slices(tokens)
}

/// The number of operations that combine values. A slice counts, because a slice of a list keeps the whole list.
fn joints(tokens: &[Token<'_>]) -> usize {
    let signs = tokens.iter().filter(|token| matches!(token, Token::Sign("~" | "+"))).count();
    signs + slices(tokens) + commas(tokens)
}

fn slices(tokens: &[Token<'_>]) -> usize {
    let mut count = 0;
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign("[") => open.push(is_behind_value(tokens, at)),
            Token::Sign("(" | "{") => open.push(false),
            Token::Sign(")" | "]" | "}") => drop(open.pop()),
            Token::Sign(":") if open.last() == Some(&true) => count += 1,
            _ => {}
        }
    }
    count
}

/// The commas of lists and mappings that hold more than literals. Commas between arguments combine nothing.
fn commas(tokens: &[Token<'_>]) -> usize {
    #[derive(Default)]
    struct Open {
        is_literal: bool,
        commas: usize,
        has_name: bool,
    }
    let mut count = 0;
    let mut open: Vec<Open> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match (token, open.last_mut()) {
            (Token::Sign("(" | "["), _) => {
                open.push(Open { is_literal: !is_behind_value(tokens, at), ..Open::default() });
            }
            (Token::Sign("{"), _) => open.push(Open { is_literal: true, ..Open::default() }),
            (Token::Sign(")" | "]" | "}"), Some(Open { is_literal, commas, has_name })) => {
                count += if *is_literal && *has_name { *commas } else { 0 };
                let has_name = *has_name;
                open.pop();
                if let Some(outer) = open.last_mut() {
                    outer.has_name |= has_name;
                }
            }
            (Token::Sign(","), Some(innermost)) => innermost.commas += 1,
            (Token::Name(_), Some(innermost)) => innermost.has_name = true,
            _ => {}
        }
    }
    // An unclosed bracket is not a valid template anyway.
    count + open.iter().map(|open| open.commas).sum::<usize>()
}

fn is_behind_value(tokens: &[Token<'_>], at: usize) -> bool {
    at > 0 && matches!(tokens[at - 1], Token::Name(_) | Token::Sign(")" | "]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_doubles_again_and_again_is_refused() {
        let double = |tag: &str| tag.repeat(7);
        for source in [
            double("{% set a = a ~ a %}"),
            double("{% set a = [a, a] %}"),
            double("{% set a = a + a %}"),
            double("{% set payload = payload ~ payload %}"),
            double("{% set a = {'x': a, 'y': a} %}"),
            "{% set a = p ~ p ~ p ~ p %}{% for b in [a ~ a ~ a ~ a] %}{% for c in [b ~ b ~ b ~ b] %}{{ c ~ c }}\
             {% endfor %}{% endfor %}".to_owned(),
            "{% with a = p ~ p ~ p ~ p %}{% with b = a ~ a ~ a ~ a %}{% with c = b ~ b ~ b ~ b ~ b %}{{ c }}\
             {% endwith %}{% endwith %}{% endwith %}"
                .to_owned(),
            "{% set a %}{{ a }}{{ a }}{% endset %}".to_owned(),
            "{% filter upper %}x{% endfilter %}".to_owned(),
            "{% for x in [p] recursive %}{{ loop([x ~ x]) }}{% endfor %}".to_owned(),
            "{{ 'x' * 100000000 }}".to_owned(),
            "{{ 10 ** 9 }}".to_owned(),
            format!("{{{{ p{} }}}}", " ~ p".repeat(64)),
            format!("{{{{ p{} }}}}", "|e".repeat(20)),
            format!("{{{{ p{} }}}}", " + p".repeat(16)),
            "{% for x in p[::-1] %}{% endfor %}".to_owned(),
            "{{ p[{'a': 1}['a']:9:n] }}".to_owned(),
            format!("{{% if {} %}}{{% endif %}}", vec!["a.b == c.d"; 33].join(" and ")),
            format!("{{% if {} %}}{{% endif %}}", vec!["'a' in b"; 33].join(" or ")),
            format!("{{% if {} %}}{{% endif %}}", ["a[1:]"; 6].join(" or ")),
            "{% set a = b + b + b + b + b + b + b + b + b %}{% if a == b and a == c and a == d and a == e %}\
             {% endif %}".to_owned(),
        ] {
            assert!(check(&source).is_err(), "{source}");
        }
    }

    /// MiniJinja frees memory at the end of a block, but a source may have no blocks.
    #[test]
    fn all_that_is_kept_is_bounded_however_many_tags_keep_it() {
        for (value, most) in [
            ("c ~ c ~ c ~ c ~ c ~ c ~ c ~ c", MAX_KEPT_WEIGHT / 8),
            ("[c, c]", MAX_KEPT_WEIGHT / 2),
            ("c | upper", MAX_KEPT_WEIGHT),
            ("c[1:]", MAX_KEPT_WEIGHT / 2),
            ("range(1000)", MAX_KEPT_WEIGHT),
        ] {
            let sets = |count| {
                (0..count).fold(String::new(), |source, n| format!("{source}{{% set d{n} = {value} %}}"))
            };
            assert_eq!(check(&sets(most)), Ok(()), "{value}");
            assert!(check(&sets(most + 1)).unwrap_err().contains("variables set up to here"), "{value}");
        }
        let kept_bytes = MAX_KEPT_WEIGHT * super::super::filters::MAX_TEXT_BYTES;
        assert!(kept_bytes <= 64 * 1024 * 1024, "{kept_bytes}");
        let names = "{% set a = payload.a.b %}{% for x in payload.list %}{{ x ~ a }}{% endfor %}";
        assert_eq!(check(&names.repeat(3_000)), Ok(()));
    }

    #[test]
    fn large_values_are_not_put_together_in_loops() {
        let source =
            |parts: usize| format!("{{% for x in p %}}{{{{ x{} }}}}{{% endfor %}}", " ~ p".repeat(parts));
        assert_eq!(check(&source(15)), Ok(()));
        assert!(check(&source(16)).unwrap_err().contains("in a loop"));
        assert_eq!(check(&format!("{}{{{{ x{} }}}}", source(1), " ~ p".repeat(16))), Ok(()));
        assert!(check(&format!("{{{{ '{}' }}}}", "x".repeat(9_000))).is_err());
    }

    #[test]
    fn what_people_write_is_not() {
        for source in [
            "{{ payload.first ~ ' ' ~ payload.last }}",
            "{% set name = payload.guest | default('A guest', true) %}\
             {% set line = name ~ ', ' ~ payload.party %}{{ line ~ '.' }}",
            "{% for order in payload.orders %}{% for item in order.items %}{{ item.name }}{% endfor %}{% endfor %}",
            "{% for day in ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] %}{{ day }}{% endfor %}",
            "{% set total = payload.net + payload.tax %}{% set due = total - payload.paid %}\
             {{ due | currency('EUR') }}",
            "{% set a = x ~ '1' %}{% set b = x ~ '2' %}{% set c = x ~ '3' %}{% set d = x ~ '4' %}{{ a ~ b ~ c ~ d }}",
            "{% if a %}{% set b = {'x': 1, 'y': 2} %}{% elif c %}{% set b = {'x': 3, 'y': 4} %}{% else %}\
             {% set b = {'x': 5, 'y': 6} %}{% endif %}",
            "{% set months = ['gen', 'feb', 'mar', 'apr', 'mag', 'giu', 'lug', 'ago', 'set', 'ott', 'nov', \
             'dic'] %}{% for d in payload.days %}{{ d.day ~ ' ' ~ months[d.month] ~ ' ' ~ d.year }}{% endfor %}",
            "{{ payload.name[:40] ~ {'a': payload.list[1:], 'b': 2}['a'] }}",
            &format!("{{% if {} %}}a{{% endif %}}", vec!["a.b == 'c' or a.d in ['e', 5]"; 20].join(" or ")),
            &format!("{{% if {} %}}a{{% endif %}}", vec!["a.b == c.d"; 30].join(" and ")),
            &format!("{{% set a = {{{}}}[b] %}}", vec!["'c': 1"; 50].join(", ")),
            "a * b {# * #} {{ '*' }}",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }

    #[test]
    fn an_error_names_the_line() {
        let error = check("a\n{{ b }}\n{{ c * 2 }}").unwrap_err();
        assert!(error.starts_with("line 3: `*`"), "{error}");
    }
}
