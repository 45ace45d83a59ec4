//! A scripted HTTP server that records requests which break the rules of the provider in whose place it is.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug)]
pub enum Reply {
    Answer(Answer),
    /// The request is read and not answered.
    Silence,
    CloseAfterReading,
    /// As soon as the connection is open.
    CloseBeforeReading,
}

#[derive(Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: String,
    delay: Duration,
    /// How many bytes of it are written.
    written: usize,
    after_reply: AfterReply,
}

#[derive(Debug, Clone, Copy)]
enum AfterReply {
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
            after_reply: AfterReply::KeepOpen,
        })
    }

    /// Adds a header to those of every response.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.change(|answer| answer.headers = format!("{name}: {value}\r\n"))
    }

    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self.change(|answer| answer.delay = delay)
    }

    /// Writes only the first bytes, then closes the connection.
    #[must_use]
    pub fn cut_to(self, bytes: usize) -> Self {
        self.change(|answer| (answer.written, answer.after_reply) = (bytes, AfterReply::Close))
    }

    /// Writes only the first bytes, then hangs.
    #[must_use]
    pub fn then_hang(self, bytes: usize) -> Self {
        self.change(|answer| (answer.written, answer.after_reply) = (bytes, AfterReply::Hang))
    }

    /// Writes all of it, then closes the connection without announcing that.
    #[must_use]
    pub fn then_close(self) -> Self {
        self.change(|answer| answer.after_reply = AfterReply::Close)
    }

    fn change(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Reply::Answer(answer) = &mut self {
            change(answer);
        }
        self
    }
}

/// Returns the contents of a request that counts, or the rule that it breaks.
type Check<T> = fn(&Request) -> Result<Option<T>, String>;

pub enum Replies<T> {
    InOrder(VecDeque<Reply>),
    /// For unknown orders of requests: the reply depends on the request, and perhaps on those before it.
    ByRequest(Choose<T>),
}

type Choose<T> = Box<dyn FnMut(&T) -> Reply + Send>;

impl<T> Debug for Replies<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Replies::InOrder(replies) => f.debug_tuple("InOrder").field(replies).finish(),
            Replies::ByRequest(_) => f.write_str("ByRequest"),
        }
    }
}

impl<T> From<Vec<Reply>> for Replies<T> {
    fn from(replies: Vec<Reply>) -> Self {
        Replies::InOrder(replies.into())
    }
}

impl<T: 'static> From<fn(&T) -> Reply> for Replies<T> {
    fn from(choose: fn(&T) -> Reply) -> Self {
        Replies::ByRequest(Box::new(choose))
    }
}

impl<T> From<Choose<T>> for Replies<T> {
    fn from(choose: Choose<T>) -> Self {
        Replies::ByRequest(choose)
    }
}

impl<T> Replies<T> {
    fn closes_at_once(&self) -> bool {
        matches!(self, Replies::InOrder(replies) if matches!(replies.front(), Some(Reply::CloseBeforeReading)))
    }

    fn next(&mut self, asked: Option<&T>) -> Reply {
        match self {
            Replies::InOrder(replies) => replies.pop_front().expect("no more requests than replies"),
            Replies::ByRequest(choose) => asked.map_or(Reply::CloseAfterReading, choose),
        }
    }
}

#[derive(Debug)]
struct ServerState<T> {
    check: Check<T>,
    replies: Replies<T>,
    requests: Vec<T>,
    violations: Vec<String>,
    connections: usize,
}

/// Serves connections independently. Replies are given in the order of the requests.
#[derive(Debug)]
pub struct Server<T> {
    pub address: String,
    state: Arc<Mutex<ServerState<T>>>,
}

impl<T: Clone + Send + 'static> Server<T> {
    pub async fn start_with(check: Check<T>, replies: impl Into<Replies<T>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = ServerState {
            check,
            replies: replies.into(),
            requests: Vec::new(),
            violations: Vec::new(),
            connections: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let server = Server { address, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                state.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        server
    }

    /// The requests that count. Panics if one broke a rule.
    pub fn requests(&self) -> Vec<T> {
        let state = self.state.lock().unwrap();
        assert!(state.violations.is_empty(), "{:?}", state.violations);
        state.requests.clone()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }
}

async fn serve<T>(mut stream: TcpStream, state: Arc<Mutex<ServerState<T>>>) {
    let mut unread = Vec::new();
    loop {
        if state.lock().unwrap().replies.closes_at_once() {
            return;
        }
        let Some(request) = read_request(&mut stream, &mut unread).await else { return };
        let reply = {
            let mut state = state.lock().unwrap();
            let asked = (state.check)(&request).unwrap_or_else(|violation| {
                state.violations.push(violation);
                None
            });
            let reply = state.replies.next(asked.as_ref());
            state.requests.extend(asked);
            reply
        };
        let answer = match reply {
            Reply::Answer(answer) => answer,
            Reply::Silence => return std::future::pending().await,
            Reply::CloseAfterReading | Reply::CloseBeforeReading => return,
        };
        tokio::time::sleep(answer.delay).await;
        let Answer { status, headers, body, written, after_reply, .. } = answer;
        let length =
            if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let text = format!(
            "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\n{length}{headers}\r\n{body}"
        );
        // The client may have gone.
        let _ = stream.write_all(&text.as_bytes()[..written.min(text.len())]).await;
        match after_reply {
            AfterReply::KeepOpen => {}
            AfterReply::Close => return,
            AfterReply::Hang => return std::future::pending().await,
        }
    }
}

#[derive(Debug)]
pub struct Request {
    /// Such as `POST /path HTTP/1.1`.
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    /// All values of a header; the name is in lower case.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }
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
