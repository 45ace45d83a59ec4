//! Languages as people write them: `it-CH`, `it_CH` and `IT-ch` are one. What a language is called in a row has to be a tag;
//! what a recipient's is called comes from elsewhere, and is read as far as it makes sense.

use crate::row::Selector;

/// Of `zh-Hant-HK-x-shop` each is one; nobody has more.
const MAX_PARTS: usize = 5;
const MAX_PART_CHARS: usize = 8;

/// Whether it has the form of a language tag, by BCP 47 as far as templates need it.
pub fn is_tag(text: &str) -> bool {
    let mut parts = text.split(['-', '_']);
    let language = parts.next().unwrap_or_default();
    let is_language =
        (2..=MAX_PART_CHARS).contains(&language.len()) && language.bytes().all(|b| b.is_ascii_alphabetic());
    let mut count = 1;
    let parts_fit = parts.all(|part| {
        count += 1;
        (1..=MAX_PART_CHARS).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    is_language && parts_fit && count <= MAX_PARTS
}

/// One way of writing it, so that two ways can be compared: `it_CH` → `it-ch`. What is too long to be one is cut.
pub fn normal(locale: &str) -> String {
    let parts = locale.split(['-', '_']).take(MAX_PARTS);
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// `it-CH` → `it-ch`, `it`, `*`.
pub fn fallbacks(locale: Option<&str>) -> Vec<Selector<String>> {
    let normal = locale.map(normal);
    let mut fallbacks = Vec::new();
    let mut rest = normal.as_deref();
    while let Some(tag) = rest {
        fallbacks.push(Selector::Only(tag.to_owned()));
        rest = tag.rsplit_once('-').map(|(shorter, _)| shorter);
    }
    fallbacks.push(Selector::Any);
    fallbacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_language_and_few_short_parts() {
        for tag in ["it", "it-CH", "it_CH", "IT", "pt-br", "zh-Hant-HK-x-shop", "es-419", "fil"] {
            assert!(is_tag(tag), "{tag}");
        }
        for text in [
            "",
            "i",
            "*",
            "the language",
            "it-",
            "-it",
            "it CH",
            "it-CH.UTF-8",
            "ità",
            "a1",
            "it-123456789",
            "it-a-b-c-d-e",
        ] {
            assert!(!is_tag(text), "{text}");
        }
    }

    #[test]
    fn a_language_falls_back_to_its_first_part_however_it_is_written() {
        let names = |locale| fallbacks(Some(locale)).iter().map(ToString::to_string).collect::<Vec<_>>();
        for locale in ["it-CH", "it_CH", "IT-ch"] {
            assert_eq!(names(locale), ["it-ch", "it", "*"]);
        }
        assert_eq!(fallbacks(None), [Selector::Any]);
        assert_eq!(names(&"a-".repeat(100_000)).len(), MAX_PARTS + 1);
    }
}
