//! Configuration: the file, variables and flags, errors, secrets, and the generated key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::json;

use crate::interface::command::{Ran, Watched};
use crate::interface::fresh::{Answer, client};
use crate::support::home::campanile;
use crate::support::until;

/// The binary with nothing configured but its folder.
pub fn bare(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campanile"));
    for (name, _) in campanile(folder).get_envs() {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

pub fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

async fn get(url: &str, path: &str, key: &str) -> Answer {
    Answer::to(client().request(Method::GET, format!("{url}{path}")).bearer_auth(key)).await
}

/// A server that was started with this command, and its address.
async fn serve(command: &mut Command) -> (Watched, String) {
    let server = Watched::start(command.arg("serve"));
    let url = server.line(&["listens on http://"]).await.rsplit(' ').next().unwrap().to_owned();
    (server, url)
}

#[test]
fn the_reference_is_what_is_in_force_when_nothing_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Ran::of(bare(folder.path()).args(["config", "check"])).succeeded().contains("valid"));
    let reference = Ran::of(bare(folder.path()).args(["config", "print", "--reference"])).succeeded();
    assert!(reference.starts_with("# Campanile's configuration"), "{reference}");
    let printed = Ran::of(bare(folder.path()).args(["config", "print"])).succeeded();
    // The printed configuration and the reference are valid files with the same meaning.
    for text in [&printed, &reference] {
        let file = file(folder.path(), "again.toml", text);
        assert_eq!(
            Ran::of(bare(folder.path()).args(["--config", &file, "config", "print"])).succeeded(),
            printed
        );
    }
    for line in ["listen = \"127.0.0.1:8400\"", "data_dir = \"./campanile-data\"", "batch = 250"] {
        assert!(printed.contains(line) && reference.contains(line), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "looking at it makes nothing");
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(
        folder.path(),
        "my.toml",
        "data_dir = \"from-file\"\n[fan_out]\nbatch = 7\n[engine]\ninstance = \"from-file\"\nlease = \"30s\"\n",
    );
    let mut command = bare(folder.path());
    command.env("CAMPANILE_ENGINE__INSTANCE", "from-variable").env("CAMPANILE_DATA_DIR", "from-variable");
    command.args(["--config", &file, "--data-dir", "from-flag", "config", "print"]);
    let printed = Ran::of(&mut command).succeeded();
    for line in ["data_dir = \"from-flag\"", "instance = \"from-variable\"", "batch = 7", "lease = \"30s\""] {
        assert!(printed.contains(line), "{line}:\n{printed}");
    }
}

#[test]
fn secrets_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file =
        file(folder.path(), "my.toml", "[auth]\nadmin_key = \"very-secret-very-secret-very-secret\"\n");
    let in_file = Ran::of(bare(folder.path()).args(["--config", &file, "config", "print"])).succeeded();
    let in_variable = Ran::of(
        bare(folder.path())
            .env("CAMPANILE_AUTH__ADMIN_KEY", "very-secret-very-secret-very-secret")
            .args(["config", "print"]),
    );
    for printed in [in_file, in_variable.succeeded()] {
        assert!(printed.contains("(redacted)") && !printed.contains("very-secret"), "{printed}");
    }
    let urls = [
        ("CAMPANILE_DATABASE__URL", "postgres://campanile:very-secret@db/campanile"),
        ("CAMPANILE_DATABASE__DIRECT_URL", "postgres://campanile:very-secret@db/campanile"),
        ("CAMPANILE_BROKER__URL", "amqp://campanile:very-secret@broker/%2f"),
        (
            "CAMPANILE_CHANNELS__SMS__URL",
            "https://AC0123456789abcdef0123456789abcdef:very-secret@api.twilio.com?from=%2B15005550006",
        ),
    ];
    let printed = Ran::of(bare(folder.path()).envs(urls).args(["config", "print"])).succeeded();
    assert!(printed.contains("campanile:(redacted)@broker") && !printed.contains("very-secret"), "{printed}");
    assert!(printed.contains(":(redacted)@api.twilio.com?from=%2B15005550006"), "{printed}");
    for url in [
        "smtp://anna:12?very-secret@mail",
        "smtp:anna:very-secret@mail",
        "smtp://anna:very-secret",
        "smtp://anna:12/very-secret@mail",
        "smtp://anna:12#very-secret@mail",
    ] {
        let mut command = bare(folder.path());
        let ran = Ran::of(command.env("CAMPANILE_CHANNELS__EMAIL__URL", url).args(["config", "print"]));
        assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
    }
    let url = "mysql://campanile:very-secret@db/campanile";
    let refused = Ran::of(bare(folder.path()).env("CAMPANILE_DATABASE__URL", url).args(["config", "check"]));
    assert!(!refused.err.contains("very-secret"), "{refused:?}");
    refused.failed(1, &["database.url", "mysql", "postgres://"]);
}

#[test]
fn the_hosts_of_the_guide_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = "*.slack.com hooks.example:8443 10.0.0.7:8065 [fd00::7] localhost:8065";
    let mut command = bare(folder.path());
    let doctor = Ran::of(command.env("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", hosts).arg("doctor"));
    for host in hosts.split(' ') {
        assert!(doctor.out.contains(host), "{host}: {doctor:?}");
    }
}

#[test]
fn default_webhooks_are_not_printed_and_a_variable_wins_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[channels.slack]\nallowed_hosts = \"hooks.slack.com\"\n[channels.slack.default_webhook]\n\
                ADMIN_USER = \"https://hooks.slack.com/very-secret\"\n";
    let file = file(folder.path(), "my.toml", text);
    let print = || {
        let mut command = bare(folder.path());
        command.args(["--config", &file, "config", "print"]);
        command
    };
    let printed = Ran::of(&mut print()).succeeded();
    assert!(printed.contains("ADMIN_USER = \"(redacted)\"") && !printed.contains("very-secret"), "{printed}");
    let variable = "CAMPANILE_CHANNELS__SLACK__DEFAULT_WEBHOOK__ADMIN_USER";
    let refused = Ran::of(print().env(variable, "https://evil.example/very-secret"));
    assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
    refused.failed(1, &["channels.slack.default_webhook", "allowed_hosts"]);
}

#[test]
fn what_is_wrong_with_slack_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("[send.email]\nwait_for = \"1h\"\n", ["send.email.wait_for", "only valid for send.slack"]),
        ("[send.slack]\nmax_attempts = 3\n", ["send.slack.max_attempts", "send.slack.wait_for"]),
        ("[channels.slack]\nallowed_hosts = \"*.com\"\n", ["channels.slack.allowed_hosts", "*.slack.com"]),
        ("[channels.slack]\nrate = 0\n", ["channels.slack.rate", "between 0.001"]),
        (
            "[channels.slack.default_webhook]\nADMIN_USER = \"https://hooks.slack.com/x\"\n",
            ["default_webhook.ADMIN_USER", "allowed_hosts"],
        ),
        (
            "[channels.slack]\nallowed_hosts = \"a.example\"\n[channels.slack.default_webhook]\nADMIN_USER = \
             \"a.example\"\n",
            ["default_webhook.ADMIN_USER", "https://"],
        ),
        (
            "[channels.slack.default_webhook]\nADMIN = \"https://hooks.slack.com/x\"\n",
            ["default_webhook.ADMIN:", "ADMIN_USER"],
        ),
        (
            "[channels.slack.default_webhook]\nCUSTOMER = \"https://hooks.slack.com/x\"\n",
            ["default_webhook.CUSTOMER", "add SLACK"],
        ),
    ] {
        let file = file(folder.path(), "bad.toml", text);
        for command in [["config", "check"].as_slice(), &["serve"]] {
            Ran::of(bare(folder.path()).args(["--config", &file]).args(command)).failed(1, &words);
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("colour = \"red\"\n", ["`colour`", "unknown"]),
        ("[server]\nlissten = \"127.0.0.1:1\"\n", ["server.lissten", "listen"]),
        ("[send.email]\nretries = 3\n", ["send.email.retries", "max_attempts"]),
        ("[server]\nlisten = \"everywhere\"\n", ["server.listen", "address"]),
        ("[engine]\nlease = \"soon\"\n", ["engine.lease", "10s"]),
        ("[engine]\nlease = \"1s\"\n", ["engine.lease", "2s"]),
        ("[fan_out]\nbatch = 0\n", ["fan_out.batch", "between 1"]),
        ("[fan_out]\nbatch = \"many\"\n", ["fan_out.batch", "many"]),
        ("[broker]\nurl = \"kafka://localhost\"\n", ["broker.url", "amqp://"]),
        ("[database]\nurl_file = \"/no/such/file\"\n", ["database.url_file", "/no/such/file"]),
        (
            "[database]\nurl = \"postgres://db/a\"\nmax_connections = 1\n",
            ["database.max_connections", "between 4"],
        ),
        ("[engine]\nroles = \"api,publisher\"\n", ["engine.roles", "fan_out"]),
        ("[engine]\nroles = \"api\"\n", ["engine.roles", "this instance does not run"]),
        ("[send.sms]\non_doubt = \"panic\"\n", ["send.sms.on_doubt", "hold"]),
        ("[recover]\nrepublish_after = \"900ms\"\n", ["recover.republish_after", "1s"]),
        ("[channels.push]\nttl = \"30s\"\n", ["channels.push.ttl", "672h"]),
        ("[channels.push]\nttl = \"673h\"\n", ["channels.push.ttl", "672h"]),
        ("[channels.push]\nsound = \"a\\nb\"\n", ["channels.push.sound", "one line"]),
        ("[channels.sms]\nurl_file = \"/no/such/file\"\n", ["channels.sms.url_file", "/no/such/file"]),
        ("[channels.sms]\ndeadline = \"1ms\"\n", ["channels.sms.deadline", "100ms"]),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nfrom = \"anna\"\n",
            ["channels.email.from", "it has no @"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nfrom = \"Zoë <zoë@example.com>\"\n",
            ["channels.email.from", "non-ASCII"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nreply_to = \"zoë@example.com\"\n",
            ["channels.email.reply_to", "non-ASCII"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nfrom = \"a@b.example\"\nca_file = \"/no/such/file\"\n",
            ["channels.email.ca_file", "/no/such/file"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nca_file = \"/dev/null\"\n",
            ["channels.email.ca_file", "holds no certificate"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nenvelope_from = \"Anna <a@b.example>\"\n",
            ["channels.email.envelope_from", "without a display name"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\n[channels.email.headers]\nbcc = \"eve@example.com\"\n",
            ["channels.email.headers", "set by Campanile"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\n[channels.email.headers]\nX-A = \"a\\r\\nBcc: x\"\n",
            ["channels.email.headers", "one line"],
        ),
        (
            "[channels.email]\nurl = \"smtp://localhost\"\nanswer_timeout = \"2h\"\n",
            ["channels.email.answer_timeout", "60m"],
        ),
        ("[send.push]\ndefer_for = \"1h\"\n", ["send.push.defer_for", "only valid for send.email"]),
        ("[send.fax]\nmax_attempts = 3\n", ["`send", "default, email, push, sms, slack"]),
        ("[channels.fax]\nurl = \"\"\n", ["channels.fax", "sms"]),
        ("[[user_types]]\nname = \"A\"\nqueue = \"q\"\nchannels = [\"FAX\"]\n", ["user_types", "FAX"]),
        ("[server\n", ["line 1", "TOML"]),
    ] {
        let file = file(folder.path(), "bad.toml", text);
        for command in
            [["config", "check"].as_slice(), &["config", "print"], &["serve"], &["migrate"], &["trace", "x"]]
        {
            Ran::of(bare(folder.path()).args(["--config", &file]).args(command)).failed(1, &words);
        }
    }
    for (name, value, word) in [
        ("CAMPANILE_COLOUR", "red", "unknown"),
        ("CAMPANILE_SERVER__COLOUR", "red", "unknown"),
        ("CAMPANILE_SERVERLISTEN", "127.0.0.1:0", "unknown"),
        ("CAMPANILE_FAN_OUT__BATCH", "many", "many"),
    ] {
        Ran::of(bare(folder.path()).env(name, value).args(["config", "check"])).failed(1, &[name, word]);
    }
    Ran::of(bare(folder.path()).args(["--config", "none.toml", "config", "check"])).failed(1, &["none.toml"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the file is there");
}

#[test]
fn what_is_wrong_with_a_provider_is_named_without_its_token() {
    const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef:very-secret";
    let folder = tempfile::tempdir().unwrap();
    let refused = |url: &str, words: &[&str]| {
        let mut command = bare(folder.path());
        let refused = Ran::of(command.env("CAMPANILE_CHANNELS__SMS__URL", url).args(["config", "check"]));
        assert!(!refused.err.contains("secret"), "{url}: {refused:?}");
        refused.failed(1, &[&["channels.sms.url"], words].concat());
    };
    refused(
        "AC0123456789abcdef0123456789abcdef very-secret",
        &["not a valid URL", "https://ACCOUNT_SID:AUTH_TOKEN@"],
    );
    refused(
        &format!("smpp://{ACCOUNT}@host?from=1234"),
        &["must start with https:// or http://", "https://ACCOUNT_SID"],
    );
    refused(
        &format!("{ACCOUNT}@api.twilio.com?from=1234"),
        &["must start with https:// or http://", "https://ACCOUNT_SID"],
    );
    refused(&format!("http://{ACCOUNT}@api.twilio.com?from=1234"), &["unencrypted", "https://"]);
    refused(&format!("http://{ACCOUNT}@10.0.0.1?from=1234"), &["unencrypted", "https://"]);
    refused(
        "https://SK0123456789abcdef0123456789abcdef:very-secret@api.twilio.com?from=1234",
        &["account SID"],
    );
    refused("https://api.twilio.com?from=1234", &["account SID"]);
    refused("https://AC0123456789abcdef0123456789abcdef@api.twilio.com?from=1234", &["auth token"]);
    refused(&format!("https://{ACCOUNT}@api.twilio.com"), &["`from`"]);
    refused(&format!("https://{ACCOUNT}@api.twilio.com?from=1234#secret"), &["%23"]);
    refused(
        "https://AC0123456789abcdef0123456789abcdef:12/secret@api.twilio.com?from=1234",
        &["account SID"],
    );
    refused(&format!("https://{ACCOUNT}@api.twilio.com?from=+15005550006"), &["%2B"]);
    refused(
        &format!("https://{ACCOUNT}@api.twilio.com?from=15005550006"),
        &["its + written as %2B", "short code"],
    );
    refused(&format!("https://{ACCOUNT}@api.twilio.com?from=1234&to=5678"), &["unknown option `to`"]);
    refused(&format!("https://{ACCOUNT}@api.twilio.com?from=1234&from=5678"), &["given twice"]);
    for right in [
        "https://{}@api.twilio.com?from=%2B15005550006",
        "http://{}@localhost:1/x?from=Trattoria",
        "http://{}@[::1]:1?from=1234",
    ] {
        let mut command = bare(folder.path());
        let url = right.replace("{}", ACCOUNT);
        Ran::of(command.env("CAMPANILE_CHANNELS__SMS__URL", url).args(["config", "check"])).succeeded();
    }
}

#[test]
fn what_is_wrong_with_a_mail_server_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let check = |url: &str| {
        let mut command = bare(folder.path());
        command.env("CAMPANILE_CHANNELS__EMAIL__FROM", "Trattoria <noreply@example.com>");
        let ran = Ran::of(command.env("CAMPANILE_CHANNELS__EMAIL__URL", url).args(["config", "check"]));
        assert!(!ran.err.contains("secret"), "{url}: {ran:?}");
        ran
    };
    for (url, words) in [
        ("mail.example.com:587", ["must start with smtp:// or smtps://", "smtp://user"]),
        ("http://u:secret@mail.example.com", ["must start with smtp:// or smtps://", "smtp://user"]),
        ("smtp:mail", ["the host is missing", "smtp://"]),
        ("smtp://u:12/secret@mail.example.com", ["%2F", "smtp://"]),
        ("smtps://mail.example.com/secret", ["%2F", "smtp://"]),
        ("smtps://u:12#secret@mail.example.com", ["%23", "smtp://"]),
        ("smtps://u:sec#ret@mail.example.com", ["not a valid URL", "smtp://"]),
        ("smtps://u:secret/x@mail.example.com", ["not a valid URL", "smtp://"]),
        ("smtp://u@mail.example.com", ["the password is missing", "smtp://"]),
        ("smtp://u:secret@mail.example.com?tls=none", ["unencrypted", "tls=required"]),
        ("smtp://u:secret@mail.example.com?tls=if-offered", ["unencrypted", "tls=required"]),
        ("smtp://u:secret@mail.example.com?tls=yes", ["`required`", "`none`"]),
        ("smtps://u:secret@mail.example.com?tls=required", ["smtps://", "remove the option `tls`"]),
        ("smtp://u:secret@mail.example.com?pool=3", ["unknown option `pool`", "smtp://"]),
        ("smtp://u:12?secret@mail.example.com", ["@ after ?", "%3F"]),
        ("smtp://u:secret@mail.example.com?connections=0", ["`connections`", "from 1 to 1000"]),
        ("smtp://u:secret@mail.example.com?rate=fast", ["`rate`", "a second"]),
        ("smtp://one.example.com smtp://u@two.example.com", ["the password is missing", "smtp://"]),
    ] {
        check(url).failed(1, &[&["channels.email.url"], &words[..]].concat());
    }
    for right in [
        "smtp://u:p%40ss@mail.example.com:587?tls=required",
        "smtps://u:p@mail.example.com smtp://localhost:2525?rate=0.5&domain_rate=20&domain_connections=5&hello=here",
        "smtp://[::1]:2525?connections=3&messages_per_connection=1",
    ] {
        check(right).succeeded();
    }
}

#[tokio::test]
async fn a_key_is_made_for_the_owner_alone_and_opens() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, url) = serve(
        bare(folder.path()).args(["--data-dir", "data"]).env("CAMPANILE_SERVER__LISTEN", "127.0.0.1:0"),
    )
    .await;
    let path = folder.path().join("data/admin.key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let key = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    assert!(key.len() >= 40, "{}", key.len());
    assert_eq!(get(&url, "/v1/events", &key).await.status, 200);
    get(&url, "/v1/events", "").await.assert_problem(401, "unauthorized");
    // The key is shown only on a terminal.
    assert!(server.lines().iter().all(|line| !line.contains(&key)), "{:?}", server.lines());
    // The command line finds the key in the folder.
    let emit = ["emit", "--id", "evt-1", "--type", "T", "--aggregate", "ADMIN:1"];
    Ran::of(bare(folder.path()).args(["--url", &url, "--data-dir", "data"]).args(emit)).succeeded();
    assert!(server.terminate().success());

    let (_server, url) = serve(
        bare(folder.path()).args(["--data-dir", "data"]).env("CAMPANILE_SERVER__LISTEN", "127.0.0.1:0"),
    )
    .await;
    assert_eq!(get(&url, "/v1/events/evt-1", &key).await.status, 200, "the next start keeps the key");
}

const KEY_OF_DIGITS: &str = "00420042004200420042004200420042";

#[tokio::test]
async fn a_configuration_file_is_honoured_by_the_server_and_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key.txt"), format!("{KEY_OF_DIGITS}\n")).unwrap();
    let file = file(
        folder.path(),
        "my.toml",
        "data_dir = \"./mine\"\n[server]\nlisten = \"127.0.0.1:0\"\n[auth]\nadmin_key_file = \"key.txt\"\n\
         [engine]\ninstance = \"the-bell\"\n[[user_types]]\nname = \"MONK\"\nqueue = \"notification.monk\"\n\
         channels = [\"EMAIL\"]\n",
    );
    let (_server, url) = serve(bare(folder.path()).args(["--config", &file])).await;
    assert!(
        folder.path().join("mine/campanile.db").exists() && !folder.path().join("mine/admin.key").exists()
    );
    let put = client().put(format!("{url}/v1/recipients")).bearer_auth(KEY_OF_DIGITS);
    let monk = json!([{"user_type": "MONK", "user_id": 1, "email": "monk@example.com"}]);
    assert_eq!(Answer::to(put.json(&monk)).await.status, 200);
    let put = client().put(format!("{url}/v1/audiences")).bearer_auth(KEY_OF_DIGITS);
    let monks = json!([{"event_type": "VESPERS", "name": "monks", "recipient_type": "MONK"}]);
    assert_eq!(Answer::to(put.json(&monks)).await.status, 200);

    let emit = ["emit", "--id", "evt-1", "--type", "VESPERS", "--aggregate", "ABBEY:1"];
    Ran::of(bare(folder.path()).args(["--config", &file, "--url", &url]).args(emit)).succeeded();
    let trace = until("the monk is told", async || {
        let trace = get(&url, "/v1/events/evt-1", KEY_OF_DIGITS).await.body;
        (trace["event"]["status"] == "PROCESSED").then_some(trace)
    })
    .await;
    assert_eq!(trace["processed"]["instance"], "the-bell");
    assert_eq!(trace["decisions"][0]["channels"]["EMAIL"], "SEND");
    assert_eq!(trace["decisions"][0]["channels"]["WEBSOCKET"], "UNSUPPORTED");
}

#[tokio::test]
async fn a_key_of_digits_is_taken_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = serve(
        campanile(folder.path())
            .env("CAMPANILE_AUTH__ADMIN_KEY", KEY_OF_DIGITS)
            .env("CAMPANILE_SERVER__LISTEN", "127.0.0.1:0"),
    )
    .await;
    assert_eq!(get(&url, "/v1/events", KEY_OF_DIGITS).await.status, 200);
    get(&url, "/v1/events", &KEY_OF_DIGITS[2..]).await.assert_problem(401, "unauthorized");
}

#[tokio::test]
async fn migrate_makes_the_tables_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let said = Ran::of(bare(folder.path()).args(["--data-dir", "data", "migrate"])).succeeded();
        assert!(said.contains("data/campanile.db is up to date"), "{said}");
    }
    let (_server, url) = serve(
        bare(folder.path()).args(["--data-dir", "data"]).env("CAMPANILE_SERVER__LISTEN", "127.0.0.1:0"),
    )
    .await;
    assert_eq!(get(&url, "/readyz", "").await.body["components"]["database"], "ok");
    // Not while a server is running.
    let refused = Ran::of(bare(folder.path()).args(["--data-dir", "data", "migrate"]));
    refused.failed(1, &["another Campanile is already running", "data/campanile.db"]);
    let elsewhere =
        Ran::of(bare(folder.path()).env("CAMPANILE_DATABASE__URL", "sqlite:other/my.db").arg("migrate"));
    assert!(elsewhere.succeeded().contains("other/my.db"));
}
