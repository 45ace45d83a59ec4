//! A server that knows the rules of Twilio's Messages resource, and panics where a request breaks one; it replies as told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const ACCOUNT_SID: &str = "AC0123456789abcdef0123456789abcdef";
pub const AUTH_TOKEN: &str = "fedcba9876543210fedcba9876543210";
/// The two, with a colon between them, in Base64.
const AUTHORIZATION: &str =
    "Basic QUMwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjpmZWRjYmE5ODc2NTQzMjEwZmVkY2JhOTg3NjU0MzIxMA==";

#[derive(Debug)]
pub enum Reply {
    Answer(Answer),
    /// The request is read, and nothing more happens.
    Silence,
    CloseAfterReading,
    /// As soon as the connection is there.
    CloseBeforeReading,
}

#[derive(Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: String,
    delay: Duration,
    /// So many bytes of it are written.
    written: usize,
    then: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    KeepOpen,
    Close,
    Hang,
}

impl Reply {
    pub fn json(status: u16, body: &str) -> Self {
        Reply::Answer(Answer {
            status,
            headers: String::new(),
            body: body.to_owned(),
            delay: Duration::ZERO,
            written: usize::MAX,
            then: Then::KeepOpen,
        })
    }

    /// With this header, besides those that every answer has.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.change(|answer| answer.headers = format!("{name}: {value}\r\n"))
    }

    pub fn after(self, delay: Duration) -> Self {
        self.change(|answer| answer.delay = delay)
    }

    /// Only its first bytes, and the connection is closed.
    pub fn cut_to(self, bytes: usize) -> Self {
        self.change(|answer| (answer.written, answer.then) = (bytes, Then::Close))
    }

    /// Only its first bytes, and nothing more.
    pub fn then_hang(self, bytes: usize) -> Self {
        self.change(|answer| (answer.written, answer.then) = (bytes, Then::Hang))
    }

    /// All of it, and the connection is closed without a word of warning.
    pub fn then_close(self) -> Self {
        self.change(|answer| answer.then = Then::Close)
    }

    fn change(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Reply::Answer(answer) = &mut self {
            change(answer);
        }
        self
    }
}

type Fields = Vec<(String, String)>;

#[derive(Debug, Default)]
struct Seen {
    replies: VecDeque<Reply>,
    messages: Vec<Fields>,
    violations: Vec<String>,
    connections: usize,
}

/// Each connection is served by itself; replies are given in the order of the requests.
#[derive(Debug)]
pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
}

impl Server {
    pub async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Seen { replies: replies.into(), ..Seen::default() }));
        let server = Server { address, seen: Arc::clone(&seen) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        server
    }

    /// The fields of each message that was asked for.
    pub fn requests(&self) -> Vec<Fields> {
        let seen = self.seen.lock().unwrap();
        assert!(seen.violations.is_empty(), "{:?}", seen.violations);
        seen.messages.clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    let mut unread = Vec::new();
    loop {
        if matches!(seen.lock().unwrap().replies.front(), Some(Reply::CloseBeforeReading)) {
            return;
        }
        let Some(request) = read_request(&mut stream, &mut unread).await else { return };
        let reply = {
            let mut seen = seen.lock().unwrap();
            match check(&request) {
                Ok(Some(fields)) => seen.messages.push(fields),
                Ok(None) => {}
                Err(violation) => seen.violations.push(violation),
            }
            seen.replies.pop_front().expect("no more requests than replies")
        };
        let answer = match reply {
            Reply::Answer(answer) => answer,
            Reply::Silence => return std::future::pending().await,
            Reply::CloseAfterReading | Reply::CloseBeforeReading => return,
        };
        tokio::time::sleep(answer.delay).await;
        let Answer { status, headers, body, written, then, .. } = answer;
        let length =
            if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let text = format!(
            "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\n{length}{headers}\r\n{body}"
        );
        // Who asked may have gone.
        let _ = stream.write_all(&text.as_bytes()[..written.min(text.len())]).await;
        match then {
            Then::KeepOpen => {}
            Then::Close => return,
            Then::Hang => return std::future::pending().await,
        }
    }
}

struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

async fn read_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8(unread[..end].to_vec()).unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let headers: Vec<(String, String)> = headers
        .lines()
        .filter_map(|header| header.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
    while unread.len() < end + 4 + length {
        more(stream, unread).await?;
    }
    let body = String::from_utf8(unread[end + 4..end + 4 + length].to_vec()).unwrap();
    unread.drain(..end + 4 + length);
    Some(Request { line: line.to_owned(), headers, body })
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(unread).await.ok()?;
    (read > 0).then_some(())
}

/// The fields of a message; nothing for who only asks for the account.
fn check(request: &Request) -> Result<Option<Fields>, String> {
    let Request { line, headers, body } = request;
    let values = |name: &str| -> Vec<&str> {
        headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    };
    if values("authorization") != [AUTHORIZATION] {
        return Err(format!("{line}: not authenticated"));
    }
    if *line == format!("GET /2010-04-01/Accounts/{ACCOUNT_SID}.json HTTP/1.1") {
        return if body.is_empty() { Ok(None) } else { Err("a GET has no body".to_owned()) };
    }
    if *line != format!("POST /2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json HTTP/1.1") {
        return Err(format!("{line}: not the Messages resource"));
    }
    if values("content-type") != ["application/x-www-form-urlencoded"] {
        return Err(format!("the content type is {:?}", values("content-type")));
    }
    let fields: Fields = body
        .split('&')
        .map(|field| field.split_once('=').ok_or_else(|| format!("`{field}` is no field")))
        .map(|field| field.map(|(name, value)| (decoded(name), decoded(value))))
        .collect::<Result<_, _>>()?;
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    if names != ["To", "From", "Body"] && names != ["To", "MessagingServiceSid", "Body"] {
        return Err(format!("the fields are {names:?}"));
    }
    let digits = fields[0].1.strip_prefix('+').unwrap_or_default();
    let is_e164 = (2..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    if !is_e164 {
        return Err(format!("`{}` is not E.164", fields[0].1));
    }
    if fields[2].1.is_empty() || fields[2].1.chars().count() > 1_600 {
        return Err("a body has 1 to 1600 characters".to_owned());
    }
    Ok(Some(fields))
}

/// As forms encode it.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex =
                    [rest.next(), rest.next()].map(|digit| char::from(digit.unwrap()).to_digit(16).unwrap());
                bytes.push(u8::try_from(hex[0] * 16 + hex[1]).unwrap());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}
