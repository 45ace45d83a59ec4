//! A provider in a process of its own. It implements Twilio's Messages resource, enforces its rules strictly, and
//! records everything that it accepts in a ledger. It can be told to be slow, to refuse, or to accept without
//! answering.
//!
//! The rules are those of testkit. The server is not, because it outlives every fault, answers by chance instead of by
//! script, and keeps a ledger. A message is in the ledger before its sender gets an answer, so the ledger is
//! authoritative and answers are not. A request that breaks a rule is answered as by Twilio and recorded as a
//! violation.

mod book;
mod door;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use campanile_testkit::provider::twilio::{Fields, NewMessage, Refusal};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use book::{Book, Fate, Mode, Then};
use door::{Door, Wire};

/// The only account.
pub const ACCOUNT_SID: &str = "AC5ca1ab1e0000000000000000000000ff";
pub const AUTH_TOKEN: &str = "70a57ed5ec7e70000000000000000042";
/// Account and token, for HTTP basic authentication.
const AUTHORIZATION: &str =
    "Basic QUM1Y2ExYWIxZTAwMDAwMDAwMDAwMDAwMDAwMDAwMDBmZjo3MGE1N2VkNWVjN2U3MDAwMDAwMDAwMDAwMDAwMDA0Mg==";

/// Longer than any client waits.
const SILENCE: Duration = Duration::from_mins(1);

/// Twilio's test numbers: valid, and refused.
const MAGIC: [(&str, u32, &str); 5] = [
    ("+15005550001", 21211, "Invalid 'To' Phone Number"),
    ("+15005550002", 21612, "The combination of 'To' and 'From' can't be connected"),
    ("+15005550003", 21408, "Permission to send an SMS has not been enabled for the region"),
    ("+15005550004", 21610, "Attempt to send to unsubscribed recipient"),
    ("+15005550009", 21614, "'To' number is not a valid mobile number"),
];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// What was accepted, one JSON object per line; begun anew.
    #[arg(long)]
    ledger: PathBuf,
    /// Which requests fare badly, when some shall.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Serves until standard input closes, so it outlives every fault and ends with the harness.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let file = File::create(&options.ledger)
        .with_context(|| format!("the ledger {} can't be written", options.ledger.display()))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    let (closed, stdin_closed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = closed.send(());
    });
    tokio::select! {
        served = serve(listener, Book::new(file, options.seed)) => served.context("the provider ended"),
        _ = stdin_closed => Ok(()),
    }
}

async fn serve(listener: TcpListener, book: Book) -> io::Result<()> {
    let router = Router::new()
        .route("/2010-04-01/Accounts/{account}/Messages.json", post(create_message).fallback(not_allowed))
        .route("/2010-04-01/Accounts/{account}", get(fetch_account).fallback(not_allowed))
        .route("/messages", get(messages))
        .route("/mode", put(set_mode))
        .fallback(nothing_there)
        .with_state(Arc::new(Mutex::new(book)));
    axum::serve(Door(listener), router.into_make_service_with_connect_info::<Wire>()).await
}

type Shared = Arc<Mutex<Book>>;

fn open(book: &Shared) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn create_message(
    State(book): State<Shared>,
    ConnectInfo(wire): ConnectInfo<Wire>,
    Path(account): Path<String>,
    headers: HeaderMap,
    form: Result<Form<Fields>, FormRejection>,
) -> Response {
    if let Err(FormRejection::BytesRejection(_)) = form {
        // The client died during its request, which breaks no rule.
        return wire.cut();
    }
    let request = match read(&account, &headers, form) {
        Ok(request) => request,
        Err(broken) => return broken.noted(&book),
    };
    if let Some((_, code, message)) = MAGIC.iter().find(|(number, _, _)| *number == request.to) {
        return Answer::new(StatusCode::BAD_REQUEST, *code, message).into_response();
    }
    let (fate, accepted, slow) = {
        let mut book = open(&book);
        let fate = book.fate();
        let accepted = match fate {
            Fate::Accept(then) => book.accept(&request.to, &request.body, then),
            Fate::Refuse | Fate::Busy => Ok(String::new()),
        };
        (fate, accepted, Duration::from_millis(book.mode.slow_ms))
    };
    let Ok(sid) = accepted else {
        return Answer::new(StatusCode::INTERNAL_SERVER_ERROR, 20500, "The ledger can't be written")
            .into_response();
    };
    if !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    match fate {
        Fate::Refuse => {
            Answer::new(StatusCode::SERVICE_UNAVAILABLE, 20503, "Service unavailable").into_response()
        }
        Fate::Busy => {
            let busy = Answer::new(StatusCode::TOO_MANY_REQUESTS, 20429, "Too Many Requests");
            ([(header::RETRY_AFTER, "1")], busy).into_response()
        }
        Fate::Accept(Then::Answer) => created(&request, &sid),
        Fate::Accept(Then::Close) => wire.cut(),
        Fate::Accept(Then::Silence) => {
            tokio::time::sleep(SILENCE).await;
            wire.cut()
        }
    }
}

fn created(request: &NewMessage, sid: &str) -> Response {
    let message = json!({
        "sid": sid, "account_sid": ACCOUNT_SID, "api_version": "2010-04-01", "status": "queued",
        "to": request.to, "from": request.from, "messaging_service_sid": request.service, "body": request.body,
        "direction": "outbound-api", "num_segments": "1", "num_media": "0", "error_code": null, "error_message": null,
        "uri": format!("/2010-04-01/Accounts/{ACCOUNT_SID}/Messages/{sid}.json"),
    });
    (StatusCode::CREATED, Json(message)).into_response()
}

/// Clients request the account to check their credentials.
async fn fetch_account(
    State(book): State<Shared>,
    Path(account): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(account) = account.strip_suffix(".json") else { return nothing_there(State(book)).await };
    match authenticated(account, &headers) {
        Ok(()) => Json(json!({"sid": ACCOUNT_SID, "status": "active", "type": "Full"})).into_response(),
        Err(broken) => broken.noted(&book),
    }
}

async fn nothing_there(State(book): State<Shared>) -> Response {
    Broken::new(StatusCode::NOT_FOUND, 20404, "The requested resource was not found").noted(&book)
}

async fn not_allowed(State(book): State<Shared>) -> Response {
    Broken::new(StatusCode::METHOD_NOT_ALLOWED, 20004, "Method not allowed").noted(&book)
}

async fn set_mode(State(book): State<Shared>, Json(mode): Json<Mode>) -> Response {
    if !mode.is_possible() {
        return (StatusCode::BAD_REQUEST, "more than 1000 permille\n").into_response();
    }
    open(&book).mode = mode;
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Debug, Deserialize)]
struct After {
    #[serde(default)]
    after: usize,
}

async fn messages(State(book): State<Shared>, Query(After { after }): Query<After>) -> Response {
    let page = open(&book).page(after);
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

fn read(
    account: &str,
    headers: &HeaderMap,
    form: Result<Form<Fields>, FormRejection>,
) -> Result<NewMessage, Broken> {
    authenticated(account, headers)?;
    let Form(fields) =
        form.map_err(|rejection| Broken::new(StatusCode::BAD_REQUEST, 20001, &rejection.body_text()))?;
    NewMessage::read(fields).map_err(|Refusal { status, code, message }| {
        Broken::new(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), code, &message)
    })
}

fn authenticated(account: &str, headers: &HeaderMap) -> Result<(), Broken> {
    let given = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
    if given != Some(AUTHORIZATION.as_bytes()) {
        return Err(Broken::new(StatusCode::UNAUTHORIZED, 20003, "Authenticate"));
    }
    if account != ACCOUNT_SID {
        return Err(Broken::new(StatusCode::NOT_FOUND, 20404, "The requested resource was not found"));
    }
    Ok(())
}

/// An error as Twilio returns it.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    code: u32,
    message: String,
}

impl Answer {
    fn new(status: StatusCode, code: u32, message: &str) -> Self {
        Answer { status, code, message: message.to_owned() }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let Answer { status, code, message } = self;
        let document = json!({
            "code": code, "message": message, "status": status.as_u16(),
            "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
        });
        (status, Json(document)).into_response()
    }
}

/// A request that broke a rule; its sender has a bug.
#[derive(Debug)]
struct Broken(Answer);

impl Broken {
    fn new(status: StatusCode, code: u32, message: &str) -> Self {
        Broken(Answer::new(status, code, message))
    }

    fn noted(self, book: &Shared) -> Response {
        let Broken(answer) = self;
        // Nothing was accepted, so a lost line affects only the list of violations.
        let violation = format!("{} {}: {}", answer.status.as_u16(), answer.code, answer.message);
        if let Err(error) = open(book).note_violation(&violation) {
            eprintln!("a violation ({violation}) could not be noted: {error}");
        }
        answer.into_response()
    }
}
