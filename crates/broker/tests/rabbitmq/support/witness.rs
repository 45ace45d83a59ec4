//! Another client with another library, which sees what is really in the broker, and changes it.

use amqprs::channel::{
    BasicGetArguments, BasicPublishArguments, Channel, ExchangeDeclareArguments, QueueBindArguments,
    QueueDeclareArguments, QueueDeleteArguments, QueuePurgeArguments, QueueUnbindArguments,
};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::{BasicProperties, FieldTable, FieldValue};
use percent_encoding::percent_decode_str;

pub struct Witness {
    connection: Connection,
}

impl Witness {
    pub async fn new() -> Self {
        let url = super::url();
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let (host, port) = (url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
        let mut arguments = OpenConnectionArguments::new(host, port, &user, &password);
        let vhost = decoded(url.path().trim_start_matches('/'));
        arguments.virtual_host(if vhost.is_empty() { "/" } else { &vhost });
        Self { connection: Connection::open(&arguments).await.expect("RabbitMQ is there") }
    }

    /// Whether exactly this queue can be declared, so there is none or an equal one.
    pub async fn declares_queue(&self, name: &str, arguments: &[(&str, FieldValue)]) -> bool {
        let mut table = FieldTable::new();
        for (name, value) in arguments {
            table.insert((*name).try_into().expect("it is short"), value.clone());
        }
        let declare = QueueDeclareArguments::durable_client_named(name).arguments(table).finish();
        self.channel().await.queue_declare(declare).await.is_ok()
    }

    /// Declares a queue that only the witness can use, and that ends with it.
    pub async fn declare_exclusive_queue(&self, name: &str) {
        let declare = QueueDeclareArguments::new(name).exclusive(true).finish();
        self.channel().await.queue_declare(declare).await.expect("there is none");
    }

    pub async fn declares_exchange(&self, name: &str, kind: &str, durable: bool) -> bool {
        let declare = ExchangeDeclareArguments::new(name, kind).durable(durable).finish();
        self.channel().await.exchange_declare(declare).await.is_ok()
    }

    pub async fn delete_queue(&self, name: &str) {
        let channel = self.channel().await;
        channel.queue_delete(QueueDeleteArguments::new(name)).await.expect("the broker is there");
    }

    /// The number of messages in a queue.
    pub async fn count(&self, name: &str) -> u32 {
        let passive = QueueDeclareArguments::new(name).passive(true).finish();
        let seen = self.channel().await.queue_declare(passive).await.expect("the queue is there");
        seen.map_or(0, |(_, messages, _)| messages)
    }

    pub async fn purge(&self, name: &str) {
        let channel = self.channel().await;
        channel.queue_purge(QueuePurgeArguments::new(name)).await.expect("the queue is there");
    }

    pub async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        let channel = self.channel().await;
        channel.queue_bind(QueueBindArguments::new(queue, exchange, key)).await.expect("both are there");
    }

    pub async fn unbind(&self, queue: &str, exchange: &str, key: &str) {
        let channel = self.channel().await;
        channel.queue_unbind(QueueUnbindArguments::new(queue, exchange, key)).await.expect("both are there");
    }

    pub async fn publish(&self, exchange: &str, key: &str, properties: BasicProperties, body: &[u8]) {
        let (channel, arguments) = (self.channel().await, BasicPublishArguments::new(exchange, key));
        channel.basic_publish(properties, body.to_vec(), arguments).await.expect("the broker is there");
        // A request after it, so that the broker has the message when this returns.
        channel.flow(true).await.expect("the broker is there");
    }

    /// Removes one message.
    pub async fn get(&self, queue: &str) -> Option<(BasicProperties, Vec<u8>)> {
        let get = BasicGetArguments::new(queue).no_ack(true).finish();
        let got = self.channel().await.basic_get(get).await.expect("the queue is there");
        got.map(|(_, properties, body)| (properties, body))
    }

    async fn channel(&self) -> Channel {
        self.connection.open_channel(None).await.expect("the broker is there")
    }
}

pub fn text_value(text: &str) -> FieldValue {
    FieldValue::S(text.try_into().expect("it is short"))
}
