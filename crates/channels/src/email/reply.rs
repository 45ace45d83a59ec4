//! SMTP replies: a code, optionally an enhanced code, and text for people.

/// A larger reply is not SMTP.
pub const MAX_REPLY_BYTES: usize = 16 * 1024;
const MAX_WORDS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// The enhanced code of RFC 3463, such as `5.1.1`, without its class, which is that of the code.
    pub enhanced: Option<(u16, u16)>,
    /// The text of each line.
    pub lines: Vec<String>,
}

impl Reply {
    /// Removes a complete reply from the front of the buffer, if there is one.
    pub fn take(read: &mut Vec<u8>) -> Result<Option<Reply>, MalformedReply> {
        let mut lines = Vec::new();
        let mut rest = read.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            let (code, more, text) = parts(line).ok_or(MalformedReply)?;
            lines.push(text);
            if !more {
                let left = rest.len();
                read.drain(..read.len() - left);
                return Ok(Some(Reply { code, enhanced: enhanced(code, &lines[0]), lines }));
            }
        }
        if read.len() > MAX_REPLY_BYTES { Err(MalformedReply) } else { Ok(None) }
    }

    /// 2xx.
    pub fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// Only the codes: `554 5.7.1`, or `554`.
    pub fn codes(&self) -> String {
        match self.enhanced {
            Some((subject, detail)) => format!("{} {}.{subject}.{detail}", self.code, self.code / 100),
            None => self.code.to_string(),
        }
    }

    /// The text for people without addresses: servers like to repeat them.
    pub fn redacted_text(&self) -> String {
        let text = without_quoted(&self.lines.join(" "));
        let words = text.split_whitespace().map(|word| if word.contains('@') { "(address)" } else { word });
        let said: String = words.collect::<Vec<_>>().join(" ");
        let said: String = said.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
        format!("{} {said}", self.code).trim_end().to_owned()
    }
}

/// Removes quoted text before an @: the local part of an address, which may contain blanks.
fn without_quoted(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = rest.find("\"@") {
        // There may be quotes inside quotes. The first one counts, even if this hides more than the address.
        kept.push_str(&rest[..rest.find('"').unwrap_or(end)]);
        rest = &rest[end + 1..];
    }
    kept + rest
}

/// The bytes are not SMTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedReply;

/// `250-SIZE 100` → 250, more lines follow, `SIZE 100`.
fn parts(line: &[u8]) -> Option<(u16, bool, String)> {
    let (code, rest) = line.split_at_checked(3)?;
    let code: u16 =
        str::from_utf8(code).ok().filter(|c| c.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
    let more = match rest.first() {
        None | Some(b' ') => false,
        Some(b'-') => true,
        Some(_) => return None,
    };
    (200..=599)
        .contains(&code)
        .then(|| (code, more, String::from_utf8_lossy(rest.get(1..).unwrap_or_default()).into_owned()))
}

fn enhanced(code: u16, text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split(' ').next()?.split('.').map(str::parse::<u16>);
    let (class, subject, detail) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    (class == code / 100 && numbers.next().is_none()).then_some((subject, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(text: &str) -> Vec<Reply> {
        let mut read = text.as_bytes().to_vec();
        std::iter::from_fn(|| Reply::take(&mut read).unwrap()).collect()
    }

    #[test]
    fn replies_are_taken_one_after_the_other() {
        let replies =
            replies("250 2.1.0 Ok\r\n550-5.1.1 <a@b.c>: no\r\n550 5.1.1 such user\r\n354 go\r\n250");
        assert_eq!(replies.iter().map(|reply| reply.code).collect::<Vec<_>>(), [250, 550, 354]);
        assert_eq!(replies[0].enhanced, Some((1, 0)));
        assert_eq!(replies[1].enhanced, Some((1, 1)));
        assert_eq!(replies[1].redacted_text(), "550 5.1.1 (address) no 5.1.1 such user");
        assert_eq!(replies[2].enhanced, None);
    }

    #[test]
    fn no_part_of_an_address_is_in_the_words() {
        let words = |text: &str| replies(&format!("550 5.1.1 {text}\r\n"))[0].redacted_text();
        assert_eq!(words("<anna@example.com>: unknown"), "550 5.1.1 (address) unknown");
        assert_eq!(words("<\"anna rossi\"@example.com>: unknown"), "550 5.1.1 (address) unknown");
        assert_eq!(words("no \"anna \\\"b\\\" rossi\"@x.it here"), "550 5.1.1 no (address) here");
        assert_eq!(words("\"a b\"@x.it and \"c d\"@x.it"), "550 5.1.1 (address) and (address)");
        assert_eq!(words("user \"anna\" unknown"), "550 5.1.1 user \"anna\" unknown");
    }

    #[test]
    fn what_is_no_smtp_is_told_apart() {
        for text in
            ["HTTP/1.1 400 Bad Request\r\n", "99 x\r\n", "\r\n", "2500 x\r\n", "۲۵۰ ok\r\n", "650 x\r\n"]
        {
            assert_eq!(Reply::take(&mut text.as_bytes().to_vec()), Err(MalformedReply), "{text:?}");
        }
        assert_eq!(Reply::take(&mut vec![b'2'; MAX_REPLY_BYTES + 1]), Err(MalformedReply));
        assert_eq!(Reply::take(&mut b"250-and so".to_vec()), Ok(None));
    }

    #[test]
    fn an_enhanced_code_of_another_class_is_none() {
        assert_eq!(replies("450 5.1.1 odd\r\n")[0].enhanced, None);
        assert_eq!(replies("550 5.1 odd\r\n")[0].enhanced, None);
    }
}
