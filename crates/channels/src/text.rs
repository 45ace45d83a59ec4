//! Texts for display.

use std::borrow::Cow;

/// Normalises line breaks, replaces tabs by spaces, and removes other control characters.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c.is_control() && c != '\n') {
        return Cow::Borrowed(text);
    }
    let lines = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', " ");
    Cow::Owned(lines.chars().filter(|c| *c == '\n' || !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_breaks_stay() {
        assert!(matches!(without_controls("Table 5\nè 🍝"), Cow::Borrowed(_)));
        assert_eq!(without_controls("a\r\nb\rc\td\u{0}e\u{1b}[31mf\u{7f}\u{85}g"), "a\nb\nc de[31mfg");
    }
}
