//! A client that publishes raw, handwritten bytes, as no proper client would.

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

/// Publishes `{}` to a queue with these unchecked properties.
pub async fn publish(queue: &str, properties: &[u8]) {
    let url = super::url();
    let place = (url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
    let mut stream = TcpStream::connect(place).await.expect("RabbitMQ is there");
    stream.write_all(b"AMQP\x00\x00\x09\x01").await.expect("it reads");
    answer(&mut stream).await;
    let login = format!("\0{}\0{}", url.username(), url.password().unwrap_or_default());
    let start = [&[0; 4], &*short("PLAIN"), &long(login.as_bytes()), &short("en_US")].concat();
    say(&mut stream, &[method(0, 10, 11, &start)]).await;
    let vhost = percent_decode_str(url.path().trim_start_matches('/')).decode_utf8_lossy();
    let vhost = if vhost.is_empty() { "/" } else { &vhost };
    let open = [&*short(vhost), &[0, 0]].concat();
    let tune = [0x07, 0xff, 0, 2, 0, 0, 0, 0];
    say(&mut stream, &[method(0, 10, 31, &tune), method(0, 10, 40, &open)]).await;
    say(&mut stream, &[method(1, 20, 10, &[0])]).await;
    let publish = [&[0, 0], &*short(""), &short(queue), &[0]].concat();
    let header = [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], properties].concat();
    let close = [&[0, 200], &*short(""), &[0; 4]].concat();
    let message = [method(1, 60, 40, &publish), frame(HEADER, 1, &header), frame(BODY, 1, b"{}")].concat();
    // The answer to closing the channel comes after the message, so the broker has it when this returns.
    say(&mut stream, &[message, method(1, 20, 40, &close)]).await;
}

async fn say(stream: &mut TcpStream, frames: &[Vec<u8>]) {
    stream.write_all(&frames.concat()).await.expect("it reads");
    answer(stream).await;
}

async fn answer(stream: &mut TcpStream) {
    let mut head = [0; 7];
    stream.read_exact(&mut head).await.expect("it answers");
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let mut rest = vec![0; usize::try_from(length).expect("it is short") + 1];
    stream.read_exact(&mut rest).await.expect("it answers");
}

fn method(channel: u8, class: u8, method: u8, arguments: &[u8]) -> Vec<u8> {
    frame(METHOD, channel, &[&[0, class, 0, method], arguments].concat())
}

fn frame(kind: u8, channel: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 0, channel], &*long(payload), &[0xce]].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes(), bytes].concat()
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).expect("it is short")], text.as_bytes()].concat()
}
