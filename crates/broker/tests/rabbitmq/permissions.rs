//! Missing permissions are reported before an instance needs them, and checking has no effect. Each test has a user and
//! a virtual host of its own.

use std::env;
use std::process::Command;

use campanile_broker::{Broker, RabbitMq, RabbitMqConfig};
use campanile_domain::finding::{Finding, Level};
use campanile_domain::queue::Queue;
use uuid::Uuid;

use crate::support::{make_good, publish, receive, url};

const GUIDE: &str = include_str!("../../../../docs/guides/rabbitmq.md");
/// The pattern of an earlier guide, which lacked a queue.
const TOO_NARROW: &str = r"^notifications?\.";
const ALL: &str = ".*";

/// A user with a virtual host of the same name. Both are removed at the end.
struct User {
    name: String,
}

impl User {
    fn new() -> Self {
        let name = format!("test-{}", Uuid::now_v7());
        let user = User { name };
        run(&user.guide()[0]);
        user
    }

    /// The commands of the guide for this user: those that create it, and the one that sets its permissions.
    fn guide(&self) -> [String; 2] {
        let (_, chapter) = GUIDE.split_once("\n## User and permissions\n").expect("the chapter is there");
        let block = chapter.split("```\n").nth(1).expect("it has a block").replace("campanile", &self.name);
        let at = block.find("rabbitmqctl set_permissions").expect("it has permissions");
        [block[..at].to_owned(), block[at..].to_owned()]
    }

    fn permit(&self, configure: &str, write: &str, read: &str) {
        let name = &self.name;
        run(&format!("rabbitmqctl set_permissions -p {name} {name} '{configure}' '{write}' '{read}'"));
    }

    fn config(&self) -> RabbitMqConfig {
        let mut url = url();
        url.set_username(&self.name).expect("it has users");
        url.set_password(Some("secret")).expect("it has users");
        url.set_path(&self.name);
        let queues = ["notification.a", "notification.a.high"].map(Queue::named).to_vec();
        RabbitMqConfig { url: url.to_string(), ca_file: None, prefix: String::new(), queues, limit: 100 }
    }

    async fn permissions(&self) -> Finding {
        let findings = RabbitMq::examine(&self.config()).await;
        let said = format!("{findings:?}");
        findings.into_iter().find(|finding| finding.subject == "permissions").expect(&said)
    }

    /// The queues, exchanges and bindings of the virtual host, with the messages of the queues.
    fn inventory(&self) -> String {
        let list = |what: &str| format!("rabbitmqctl {what} -p {} --no-table-headers", self.name);
        let what = ["list_queues name messages consumers", "list_exchanges name", "list_bindings"];
        let listed = run(&what.map(list).join("\n"));
        let mut lines: Vec<&str> = listed.lines().filter(|line| !line.starts_with("amq.")).collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        run(&format!("rabbitmqctl delete_vhost {0}; rabbitmqctl delete_user {0}", self.name));
    }
}

/// Runs commands that are meant for pasting into a shell.
fn run(commands: &str) -> String {
    let control = env::var("CAMPANILE_TEST_RABBITMQCTL")
        .expect("CAMPANILE_TEST_RABBITMQCTL is not set: run `cargo xtask test`, which sets it");
    let script = format!("rabbitmqctl() {{ '{control}' -q \"$@\"; }}\n{commands}");
    let ran = Command::new("bash").args(["-euc", &script]).output().expect("there is a shell");
    assert!(ran.status.success(), "{commands}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("it prints text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_guide_are_enough_and_asking_for_them_has_no_effect() {
    let user = User::new();
    run(&user.guide()[1]);
    let empty = user.inventory();
    let found = user.permissions().await;
    assert_eq!(found.level, Level::Ok, "{found:?}");
    assert_eq!(user.inventory(), empty, "nothing is made");

    let broker = RabbitMq::open(user.config()).await.expect("it may");
    make_good(&broker).await;
    publish(&broker, "notification.a", 0..3).await;
    let found = user.permissions().await;
    assert_eq!(found.level, Level::Ok, "{found:?}");
    // A message that was delivered and returned would be marked as redelivered.
    let mut consumer = broker.consume("notification.a", 10).await.expect("it is there");
    let deliveries = receive(&mut *consumer, 10).await;
    assert!(deliveries.iter().all(|delivery| !delivery.redelivered), "{deliveries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_told_with_what_gives_it() {
    let user = User::new();
    let nothing = "^$";
    // Before anything exists, and after.
    for existing in [false, true] {
        if existing {
            user.permit(ALL, ALL, ALL);
            make_good(&RabbitMq::open(user.config()).await.expect("it may")).await;
        }
        for (configure, write, read) in [(nothing, ALL, ALL), (ALL, nothing, ALL), (ALL, ALL, nothing)] {
            user.permit(configure, write, read);
            let found = user.permissions().await;
            assert_eq!(found.level, Level::Wrong, "{configure} {write} {read}: {found:?}");
            assert!(
                found.what.contains("notification.a, ") && found.what.contains("mailing.jobs.process"),
                "{found:?}"
            );
        }
        user.permit(TOO_NARROW, TOO_NARROW, TOO_NARROW);
        let found = user.permissions().await;
        assert!(found.what.ends_with(": mailing.jobs.process"), "{found:?}");
        run(&found.remedy.expect("whatever is wrong has one"));
        let found = user.permissions().await;
        assert_eq!(found.level, Level::Ok, "{found:?}");
    }
}
