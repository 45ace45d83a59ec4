//! Escapes texts for HTML. Unlike MiniJinja it keeps `/`, which ends nothing outside of a tag, so that links stay
//! readable.

use std::fmt::{self, Display, Formatter};

pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#x27;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_end_a_text_or_an_attribute_is_escaped_and_links_stay() {
        let shown = Escaped("<a href=\"https://è.example/?a=1&b='2'\">").to_string();
        assert_eq!(shown, "&lt;a href=&quot;https://è.example/?a=1&amp;b=&#x27;2&#x27;&quot;&gt;");
    }
}
