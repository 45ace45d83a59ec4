//! Tests the messages that an operator sees if a database cannot be reached or used. They contain neither the password
//! nor the data of a row.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::StoreError;
use crate::postgres::test_database::Database;
use crate::postgres::{Postgres, PostgresConfig};

async fn why(url: &str) -> String {
    let config =
        PostgresConfig { url: url.to_owned(), direct_url: String::new(), ca_file: None, max_connections: 4 };
    let error = Postgres::open(&config).await.unwrap_err().to_string();
    assert!(!error.contains("secret"), "{error}");
    error
}

/// The URL of the test's server, for another user and database.
async fn elsewhere(user: &str, name: &str) -> String {
    let database = Database::empty().await;
    let (_, rest) = database.url.split_once("://").unwrap();
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    let (host, of_test) = host.split_once('/').unwrap();
    let query = of_test.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    format!("postgres://{user}:secret@{host}/{name}{query}")
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = why(&format!("postgres://anna:secret@127.0.0.1:{port}/shop")).await;
    assert!(error.contains(&format!("the database 127.0.0.1:{port}/shop can't be reached")), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains("check that it is running and that database.url is correct"), "{error}");
}

#[tokio::test]
async fn a_host_that_nobody_knows_is_named() {
    let error = why("postgres://anna:secret@nobody.invalid:5432/shop").await;
    assert!(error.contains("the database nobody.invalid:5432/shop can't be reached"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let url = elsewhere("postgres", "no_such_database").await;
    let error = why(&url).await;
    assert!(error.contains("/no_such_database can't be used"), "{error}");
    assert!(error.contains("database \"no_such_database\" does not exist"), "{error}");
}

#[tokio::test]
async fn a_user_who_is_not_there_is_named() {
    let url = elsewhere("no_such_user", "postgres").await;
    let error = why(&url).await;
    assert!(error.contains("can't be used") && error.contains("no_such_user"), "{error}");
}

/// The test server may accept any password. So a fake server asks for the password and refuses it.
#[tokio::test]
async fn a_wrong_password_is_said_to_be_wrong() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || refuse(listener.accept().unwrap().0));
    let error = why(&format!("postgres://anna:secret@127.0.0.1:{port}/shop?sslmode=disable")).await;
    server.join().unwrap();
    assert!(error.contains(&format!("127.0.0.1:{port}/shop can't be used")), "{error}");
    assert!(error.contains("password authentication failed for user \"anna\""), "{error}");
}

fn refuse(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    let _startup = stream.read(&mut buffer).unwrap();
    stream.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
    let _password = stream.read(&mut buffer).unwrap();
    let fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"anna\"\0\0";
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    stream.write_all(&[b"E", &length[..], fields].concat()).unwrap();
}

/// PostgreSQL's own detail quotes the whole row. Errors are logged, kept in dead letters, and answered.
#[tokio::test]
async fn a_violated_constraint_is_named_without_the_row() {
    let database = Database::new().await;
    let store = database.open().await;
    let insert = "INSERT INTO campanile.recipient (user_type, user_id, email)
                  VALUES (NULL, '1', 'anna@example.com')";
    let error = with_sources(&store.execute(insert, &[]).await.unwrap_err());
    assert!(error.contains("user_type") && error.contains("recipient"), "{error}");
    assert!(!error.contains("anna@example.com"), "{error}");
}

/// The error with all its sources.
fn with_sources(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}: {error:?}");
        source = error.source();
    }
    text
}
