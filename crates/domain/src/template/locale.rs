//! Language tags as people write them: `it-CH`, `it_CH` and `IT-ch` are equal. In a row the locale must be a valid tag.
//! A recipient's locale comes from elsewhere and is read as far as it makes sense.

/// `zh-Hant-HK-x-shop` has this many parts; real tags have no more.
const MAX_PARTS: usize = 5;
const MAX_PART_CHARS: usize = 8;

/// Whether the text is a language tag, by BCP 47 as far as templates need it.
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

/// The canonical spelling of BCP 47: `IT_ch` → `it-CH`, `ZH-hANT-hk` → `zh-Hant-HK`.
pub fn canonical(tag: &str) -> String {
    let mut behind_singleton = false;
    let mut written = Vec::new();
    for (index, part) in tag.split(['-', '_']).enumerate() {
        let mut part = part.to_ascii_lowercase();
        match part.len() {
            _ if index == 0 || behind_singleton => {}
            2 => part.make_ascii_uppercase(),
            4 => part[..1].make_ascii_uppercase(),
            _ => {}
        }
        behind_singleton |= part.len() == 1;
        written.push(part);
    }
    written.join("-")
}

/// One spelling for comparisons: `it_CH` → `it-ch`. Longer texts are cut.
pub fn normal(locale: &str) -> String {
    let end = locale.match_indices(['-', '_']).nth(MAX_PARTS - 1).map_or(locale.len(), |(end, _)| end);
    let mut normal = locale[..end].replace('_', "-");
    normal.make_ascii_lowercase();
    normal
}

/// The tags to try for a normalised tag: `it-ch` → `it-ch`, `it`.
pub fn fallbacks(normal: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(normal), |tag| tag.rsplit_once('-').map(|(shorter, _)| shorter))
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
    fn a_tag_has_one_way_to_be_written() {
        for (tag, canonical) in [
            ("IT", "it"),
            ("it_ch", "it-CH"),
            ("ZH-hANT-hk", "zh-Hant-HK"),
            ("es-419", "es-419"),
            ("EN-x-US", "en-x-us"),
        ] {
            assert_eq!(super::canonical(tag), canonical);
            assert_eq!(super::canonical(canonical), canonical);
        }
    }

    #[test]
    fn a_language_falls_back_to_its_first_part_however_it_is_written() {
        for locale in ["it-CH", "it_CH", "IT-ch"] {
            assert_eq!(fallbacks(&normal(locale)).collect::<Vec<_>>(), ["it-ch", "it"]);
        }
        assert_eq!(fallbacks(&normal(&"a-".repeat(100_000))).count(), MAX_PARTS);
    }
}
