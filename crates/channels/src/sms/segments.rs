//! Counts the segments of a text, which carriers charge for, and cuts long texts. The count is made before sending and
//! ignores what Twilio's smart encoding may save.

use std::borrow::Cow;

/// Twilio's limit, whatever the encoding.
const MAX_UNITS: usize = 1_600;
/// At most this many characters are dropped to end at a word, or at least between graphemes.
const MAX_DROPPED_CHARS: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The alphabet of GSM 03.38; characters of its extension count twice.
    Gsm7,
    /// For all other texts; characters beyond the BMP, such as most emoji, count twice.
    Ucs2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    pub encoding: Encoding,
    /// The length in the units of the encoding.
    pub units: usize,
    /// 0 for an empty text.
    pub segments: usize,
}

/// Counts as carriers do.
pub fn segments(text: &str) -> Segments {
    let mut counts = Counts::default();
    counts.extend(text);
    counts.segments()
}

/// The text if it fits, else its beginning with dots at the end. At least one segment is allowed.
pub fn cut(text: &str, max_segments: usize) -> Cow<'_, str> {
    let fits = |segments: Segments| segments.segments <= max_segments.max(1) && segments.units <= MAX_UNITS;
    if fits(segments(text)) {
        return Cow::Borrowed(text);
    }
    let mut counts = Counts::default();
    let mut cut_points = CutPoints::default();
    let mut grapheme = Grapheme::default();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        counts.push(c);
        grapheme.push(c);
        let mut whole = counts;
        whole.extend(counts.dots());
        if fits(whole.segments()) {
            let next = characters.peek().map(|(_, next)| *next);
            cut_points.record(at + c.len_utf8(), c, next, &grapheme);
        } else if counts.ucs2.units > MAX_UNITS {
            break;
        }
    }
    let beginning = &text[..cut_points.best()];
    let mut counts = Counts::default();
    counts.extend(beginning);
    Cow::Owned(format!("{beginning}{}", counts.dots()))
}

/// The counts so far in both encodings, because the encoding is known only at the end of the text.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    is_beyond_gsm7: bool,
    gsm7: Packed<153>,
    ucs2: Packed<67>,
}

impl Counts {
    fn push(&mut self, c: char) {
        match gsm7_units(c) {
            Some(units) => self.gsm7.push(units),
            None => self.is_beyond_gsm7 = true,
        }
        self.ucs2.push(c.len_utf16());
    }

    fn extend(&mut self, text: &str) {
        text.chars().for_each(|c| self.push(c));
    }

    fn segments(&self) -> Segments {
        if self.is_beyond_gsm7 {
            Segments { encoding: Encoding::Ucs2, units: self.ucs2.units, segments: self.ucs2.segments(70) }
        } else {
            Segments { encoding: Encoding::Gsm7, units: self.gsm7.units, segments: self.gsm7.segments(160) }
        }
    }

    /// An ellipsis would change the encoding and reduce 160 units to 70.
    fn dots(&self) -> &'static str {
        if self.is_beyond_gsm7 { "…" } else { "..." }
    }
}

/// Units in joined segments. Each segment loses some units to the header for joining.
#[derive(Debug, Clone, Copy, Default)]
struct Packed<const CAPACITY: usize> {
    units: usize,
    segments: usize,
    /// Units of the last segment.
    filled: usize,
}

impl<const CAPACITY: usize> Packed<CAPACITY> {
    /// Adds a character; one of two units is not split.
    fn push(&mut self, units: usize) {
        self.units += units;
        if self.segments == 0 || self.filled + units > CAPACITY {
            self.segments += 1;
            self.filled = 0;
        }
        self.filled += units;
    }

    /// The number of segments. A text that fits into one segment needs no header.
    fn segments(&self, single: usize) -> usize {
        if self.units <= single { self.segments.min(1) } else { self.segments }
    }
}

/// The last places where the text may end, in bytes and in characters, from the best to the worst kind.
#[derive(Debug, Default)]
struct CutPoints {
    characters: usize,
    words: (usize, usize),
    graphemes: (usize, usize),
    any: (usize, usize),
}

impl CutPoints {
    fn record(&mut self, bytes: usize, c: char, next: Option<char>, grapheme: &Grapheme) {
        self.characters += 1;
        let end = (bytes, self.characters);
        self.any = end;
        if grapheme.ends_before(next) {
            self.graphemes = end;
            if !c.is_whitespace() && next.is_none_or(char::is_whitespace) {
                self.words = end;
            }
        }
    }

    fn best(&self) -> usize {
        let is_near = |end: &&(usize, usize)| end.0 > 0 && self.any.1 - end.1 <= MAX_DROPPED_CHARS;
        [&self.words, &self.graphemes].into_iter().find(is_near).unwrap_or(&self.any).0
    }
}

/// Recognises graphemes, which may consist of several characters: a letter with accents, an emoji with a skin colour, a
/// flag. It follows Unicode's rules for common text; rare scripts may be split within a grapheme but stay valid text.
#[derive(Debug, Default)]
struct Grapheme {
    last: Option<char>,
    /// The number of consecutive flag letters at the end.
    regional_indicators: usize,
}

impl Grapheme {
    fn push(&mut self, c: char) {
        self.last = Some(c);
        self.regional_indicators = if is_regional_indicator(c) { self.regional_indicators + 1 } else { 0 };
    }

    fn ends_before(&self, next: Option<char>) -> bool {
        let Some(next) = next else { return true };
        let is_half_a_flag = is_regional_indicator(next) && self.regional_indicators % 2 == 1;
        !(is_half_a_flag || extends_grapheme(next) || self.last == Some(JOINER))
    }
}

const JOINER: char = '\u{200d}';

fn is_regional_indicator(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}

/// Accents, variation selectors, skin colours, tags, and the joiner.
fn extends_grapheme(c: char) -> bool {
    matches!(
        c,
        JOINER
            | '\u{300}'..='\u{36f}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fe20}'..='\u{fe2f}'
            | '\u{1f3fb}'..='\u{1f3ff}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// The units of a character in GSM 03.38. Characters of the extension table follow an escape.
fn gsm7_units(c: char) -> Option<usize> {
    match c {
        '\n' | '\r' | ' '..='_' | 'a'..='z' if !matches!(c, '[' | '\\' | ']' | '^') => Some(1),
        '\u{c}' | '^' | '{' | '}' | '\\' | '[' | '~' | ']' | '|' | '€' => Some(2),
        _ => GSM7_BEYOND_ASCII.contains(c).then_some(1),
    }
}

const GSM7_BEYOND_ASCII: &str = "£¥èéùìòÇØøÅåΔΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(text: &str) -> (Encoding, usize, usize) {
        let Segments { encoding, units, segments } = segments(text);
        (encoding, units, segments)
    }

    #[test]
    fn the_alphabet_is_that_of_gsm_03_38() {
        // Row by row as in the standard, without the escape.
        let basic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ \
            !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿\
                     abcdefghijklmnopqrstuvwxyzäöñüà";
        let extension = "\u{c}^{}\\[~]|€";
        assert_eq!((basic.chars().count(), extension.chars().count()), (127, 10));
        for c in '\0'..='\u{33ff}' {
            let expected = match (basic.contains(c), extension.contains(c)) {
                (true, _) => Some(1),
                (_, true) => Some(2),
                _ => None,
            };
            assert_eq!(gsm7_units(c), expected, "{c:?}");
        }
    }

    #[test]
    fn segments_are_counted_as_carriers_do() {
        use Encoding::{Gsm7, Ucs2};
        let of = |text: &str, times: usize| text.repeat(times);
        for (text, expected) in [
            (String::new(), (Gsm7, 0, 0)),
            (of("a", 160), (Gsm7, 160, 1)),
            (of("a", 161), (Gsm7, 161, 2)),
            (of("a", 306), (Gsm7, 306, 2)),
            (of("a", 307), (Gsm7, 307, 3)),
            (of("€", 80), (Gsm7, 160, 1)),
            // 76 of them leave one unit of each segment unused.
            (of("€", 152), (Gsm7, 304, 2)),
            (of("€", 153), (Gsm7, 306, 3)),
            (format!("{}€a", of("a", 152)), (Gsm7, 155, 1)),
            (format!("{}€{}", of("a", 152), of("a", 151)), (Gsm7, 305, 2)),
            (format!("{}€{}", of("a", 152), of("a", 152)), (Gsm7, 306, 3)),
            ("ç".to_owned(), (Ucs2, 1, 1)),
            (of("ç", 70), (Ucs2, 70, 1)),
            (of("ç", 71), (Ucs2, 71, 2)),
            (of("ç", 134), (Ucs2, 134, 2)),
            (of("ç", 135), (Ucs2, 135, 3)),
            (of("😀", 35), (Ucs2, 70, 1)),
            // 33 of them leave one unit of each segment unused.
            (of("😀", 66), (Ucs2, 132, 2)),
            (of("😀", 67), (Ucs2, 134, 3)),
            (format!("{}ç", of("a", 70)), (Ucs2, 71, 2)),
        ] {
            assert_eq!(counted(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_fits_is_left_alone() {
        for text in ["", "short", &"a".repeat(160), &"😀".repeat(35)] {
            assert!(matches!(cut(text, 1), Cow::Borrowed(kept) if kept == text));
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_word_with_dots_of_its_own_alphabet() {
        let plain = format!("{} the last words", "a".repeat(149));
        assert_eq!(cut(&plain, 1), format!("{} the...", "a".repeat(149)));
        let accented = format!("ç{} the last words", "a".repeat(60));
        assert_eq!(cut(&accented, 1), format!("ç{} the…", "a".repeat(60)));
        assert_eq!(cut(&"a".repeat(161), 1), format!("{}...", "a".repeat(157)), "there is no word to end at");
    }

    #[test]
    fn what_makes_a_text_dear_may_be_what_is_cut_off() {
        let text = format!("{} 😀", "word ".repeat(28).trim_end());
        assert_eq!(counted(&text), (Encoding::Ucs2, 142, 3));
        assert_eq!(cut(&text, 1), format!("{}...", "word ".repeat(28).trim_end()));
    }

    #[test]
    fn a_sign_of_several_characters_is_cut_off_whole() {
        for grapheme in ["e\u{301}\u{323}", "👩\u{200d}👧", "👍\u{1f3fd}", "🇮🇹", "☎\u{fe0f}"] {
            for shift in 0..8 {
                let text = format!("{}{}", "x".repeat(shift), grapheme.repeat(80));
                let kept = cut(&text, 1);
                let kept = kept.strip_suffix('…').unwrap().trim_start_matches('x');
                assert!(!kept.is_empty() && kept.len().is_multiple_of(grapheme.len()), "{kept:?}");
            }
        }
    }

    #[test]
    fn a_sign_without_end_is_cut_all_the_same() {
        let endless = format!("a{}", "\u{301}".repeat(500));
        assert_eq!(counted(&cut(&endless, 1)), (Encoding::Ucs2, 70, 1));
    }

    #[test]
    fn no_text_is_longer_than_twilio_takes() {
        for text in ["a".repeat(5_000), "€".repeat(5_000), "ç".repeat(5_000), "😀 ".repeat(5_000)] {
            let kept = segments(&cut(&text, usize::MAX));
            assert!((1_590..=1_600).contains(&kept.units), "{kept:?}");
        }
        assert_eq!(segments(&cut(&"a".repeat(500), 0)).segments, 1, "there is room for one");
    }

    const PLAIN: [&str; 9] = ["a", "table", "prenotazione", " ", " ", " ", "\n", "€", "è[^]"];
    const EXPENSIVE: [&str; 9] =
        ["ç", "漢字", "😀", "👩\u{200d}👧", "👍\u{1f3fd}", "🇮🇹", "e\u{301}", "\u{301}", "…"];

    /// Words with characters of two units: few, many, or none.
    fn text() -> impl Strategy<Value = String> {
        let plain = || prop::sample::select(PLAIN.to_vec());
        let dear = || prop::sample::select(EXPENSIVE.to_vec());
        let seldom = prop_oneof![100 => plain(), 1 => dear()];
        let often = prop_oneof![1 => plain(), 1 => dear()];
        let pieces = prop_oneof![
            prop::collection::vec(plain(), 0..300),
            prop::collection::vec(seldom, 0..300),
            prop::collection::vec(often, 0..300)
        ];
        pieces.prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_cut_is_a_beginning_with_dots_that_fits(text in text(), max in 1..11_usize) {
            let kept = cut(&text, max);
            prop_assert!(segments(&kept).segments <= max);
            if segments(&text).segments <= max {
                prop_assert_eq!(&kept, &text);
            } else {
                let dots = if segments(&kept).encoding == Encoding::Gsm7 { "..." } else { "…" };
                let beginning = kept.strip_suffix(dots).unwrap();
                prop_assert!(text.starts_with(beginning) && beginning.len() < text.len());
            }
        }

        #[test]
        fn no_more_is_cut_than_must_be(text in text(), max in 1..10_usize) {
            let kept = cut(&text, max);
            if kept != text {
                let dots = if kept.ends_with("...") { 3 } else { 1 };
                let length = kept.chars().count() - dots;
                let longer: String = text.chars().take(length + MAX_DROPPED_CHARS + 1).collect();
                for dots in ["...", "…"] {
                    let needed = segments(&[&longer, dots].concat()).segments;
                    prop_assert!(longer == text || needed > max);
                }
            }
        }

        #[test]
        fn a_longer_text_never_needs_fewer_segments(text in text(), more in text()) {
            let both = [text.as_str(), &more].concat();
            prop_assert!(segments(&text).segments <= segments(&both).segments);
        }
    }
}
