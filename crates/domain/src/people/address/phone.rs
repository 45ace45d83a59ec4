//! Normalises phone numbers to the form that providers accept. Ambiguous numbers are refused; whether a number is in
//! use is left to the provider.

/// Whether the number is already in the form that providers accept: `+390551234567`.
pub fn is_e164(text: &str) -> bool {
    e164(text).as_deref() == Ok(text)
}

/// The number in E.164 form: `+390551234567`.
pub fn e164(text: &str) -> Result<String, &'static str> {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '０'..='９' => plain.extend(char::from_digit(u32::from(c) - u32::from('０'), 10)),
            '0'..='9' | '+' | '(' | ')' => plain.push(c),
            '＋' => plain.push('+'),
            '（' => plain.push('('),
            '）' => plain.push(')'),
            c if is_space(c) || is_dash(c) || matches!(c, '.' | '．') => {}
            _ => return Err("it contains characters that are not part of a phone number"),
        }
    }
    // Some countries drop this zero in calls from abroad and others do not. A wrong guess would send the text to a
    // stranger.
    if plain.contains("(0)") {
        return Err("it contains (0); write the number as dialled from abroad");
    }
    plain.retain(|c| !matches!(c, '(' | ')'));
    let digits = match plain.strip_prefix('+') {
        Some(digits) => digits,
        None => plain.strip_prefix("00").ok_or(NO_COUNTRY)?,
    };
    if digits.contains('+') {
        return Err("it has a + that is not at its beginning");
    }
    if digits.starts_with('0') {
        return Err(NO_COUNTRY);
    }
    if !(2..=15).contains(&digits.len()) {
        return Err("it does not have 2 to 15 digits, its country code among them");
    }
    Ok(format!("+{digits}"))
}

const NO_COUNTRY: &str = "it lacks + and the country code";

/// A separator between digits on one line; tabs and line breaks are none.
fn is_space(c: char) -> bool {
    c.is_whitespace() && !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}')
}

fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe63}' | '\u{ff0d}')
}

#[cfg(test)]
mod tests {
    use super::{e164, is_e164};

    #[test]
    fn what_people_put_between_digits_is_taken_out() {
        for text in [
            "+390551234567",
            "00390551234567",
            " +39 055 (123) 45-67 ",
            "+39.055.1234567",
            "+39\u{a0}055\u{2009}123\u{202f}4567",
            "(+39) 055–123‑4567",
            "＋３９　０５５（１２３）４５６７",
            "00 39 055 1234567",
        ] {
            assert_eq!(e164(text).as_deref(), Ok("+390551234567"), "{text}");
            assert_eq!(is_e164(text), text == "+390551234567", "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused_with_a_reason() {
        for (text, word) in [
            ("", "country code"),
            ("+", "2 to 15 digits"),
            ("+1", "2 to 15 digits"),
            ("055 123456", "country code"),
            ("390551234567", "country code"),
            ("+0551234", "country code"),
            ("+00390551234567", "country code"),
            ("+39055123456789012", "2 to 15 digits"),
            ("+39+055", "beginning"),
            ("39+055", "country code"),
            ("00+39055", "beginning"),
            ("+44 (0)20 7946 0000", "(0)"),
            ("+44 ( 0 ) 20 7946 0000", "(0)"),
            ("whatsapp:+390551234567", "not part of"),
            ("+39055\r\nX: y", "not part of"),
            ("+39055\n1234567", "not part of"),
            ("+39055\t1234567", "not part of"),
            ("+39055\u{2028}1234567", "not part of"),
            ("+39055\u{0}1234567", "not part of"),
            ("+39 055 ١٢٣٤", "not part of"),
            ("+1 800 FLOWERS", "not part of"),
            ("+39055123,+39055124", "not part of"),
        ] {
            let refused = e164(text).expect_err(text);
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    #[test]
    fn a_number_that_was_read_is_read_again_as_itself() {
        let once = e164("0039 (055) 123-4567").unwrap();
        assert_eq!(e164(&once), Ok(once.clone()));
    }
}
