//! A server that leaves every connection unanswered: it neither accepts nor refuses.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// A listener with a full backlog.
#[derive(Debug)]
pub struct FullListener {
    pub address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullListener {
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        // A connection that is possible takes no time, so a slow one is one that does not come.
        while let Ok(Ok(stream)) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            waiting.push(stream);
        }
        FullListener { address, _listener: listener, _waiting: waiting }
    }
}
