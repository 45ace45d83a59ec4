//! A server in place of `RabbitMQ` that speaks another protocol.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The URL of a server that answers each message with the next of these, and then closes the connection.
pub async fn url(answers: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("the listener is open");
            tokio::spawn(answer(stream, answers));
        }
    });
    format!("amqp://127.0.0.1:{port}")
}

async fn answer(mut stream: TcpStream, answers: &[&[u8]]) {
    let mut heard = [0; 4096];
    for answer in answers {
        // A client that gives up closes the connection.
        if !stream.read(&mut heard).await.is_ok_and(|bytes| bytes > 0)
            || stream.write_all(answer).await.is_err()
        {
            return;
        }
    }
}
