//! RabbitMQ: one node with an empty store, plain and TLS listeners on the loopback interface, and its own epmd.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::account::{Account, Last};
use super::certificates::Certificates;
use super::process_group::{Process, ProcessGroup};
use super::programs::BrokerPrograms;
use super::{BROKER_TLS_URL, BROKER_URL, RABBITMQ_NODE, RABBITMQCTL, Variables, ports, script};

/// The name of its log.
const NAME: &str = "rabbitmq";

/// Its log line when all listeners are open.
pub const READY: &str = "Server startup complete";

/// Keeps heaps above 512 KB from being allocated and freed at every garbage collection: see `docs/guides/rabbitmq.md`.
const HEAPS: &str = "+MHsbct 16384 +MHlmbcs 16384";

/// Kills and starts the node in a way that the process group still finds it.
const NODE_SCRIPT: &str = include_str!("node.sh");

#[derive(Debug)]
struct Node {
    account: Account,
    folder: PathBuf,
    plain_port: u16,
    tls_port: u16,
    /// The port for tools such as `rabbitmqctl`.
    distribution_port: u16,
    /// The port of its own epmd, which tells tools the port above.
    epmd_port: u16,
}

pub fn start(
    group: &ProcessGroup,
    programs: &BrokerPrograms,
    certificates: &Certificates,
    variables: &mut Variables,
) -> Result<Process> {
    let account = Account::of("rabbitmq")?;
    let folder = group.folder(NAME)?;
    account.give(&folder)?;
    let [plain_port, tls_port, distribution_port, epmd_port] = ports::free()?;
    let node = Node { account, folder, plain_port, tls_port, distribution_port, epmd_port };
    node.furnish(certificates)?;

    // Otherwise Erlang would start one in the background, which would outlive the keeper.
    let mut epmd = node.with_environment(group.server(account, Last::Kill, &programs.epmd));
    // Without it, epmd logs nothing when its port is in use.
    epmd.arg("-debug");
    group.start("epmd", account, epmd)?;
    let program = programs.rabbitmq.join("rabbitmq-server");
    let server = node.with_environment(group.server(account, Last::Kill, &program));
    let process = group.start(NAME, account, server)?;

    let rabbitmqctl = node.with_environment(group.tool(account, &programs.rabbitmq.join("rabbitmqctl")));
    let control = node.folder.join("rabbitmqctl");
    script::write(&control, &rabbitmqctl)?;

    let mut shell = node.with_environment(group.tool(account, Path::new("sh")));
    shell.args(["-c", NODE_SCRIPT, "node"]).arg(group.log(NAME)).arg(READY).arg(&program);
    let life = node.folder.join("node");
    script::write(&life, &shell)?;

    variables.insert(BROKER_URL.to_owned(), format!("amqp://guest:guest@127.0.0.1:{plain_port}/%2f"));
    variables.insert(BROKER_TLS_URL.to_owned(), format!("amqps://guest:guest@localhost:{tls_port}/%2f"));
    variables.insert(RABBITMQCTL.to_owned(), control.display().to_string());
    variables.insert(RABBITMQ_NODE.to_owned(), life.display().to_string());
    Ok(process)
}

impl Node {
    /// Writes its configuration files, so that none of the machine's own applies.
    fn furnish(&self, certificates: &Certificates) -> Result<()> {
        let key = certificates.key_for(self.account, &self.folder)?;
        self.write("rabbitmq.conf", &self.settings(certificates, &key))?;
        self.write("advanced.config", "[].\n")?;
        self.write("enabled_plugins", "[].\n")?;
        self.write("rabbitmq-env.conf", "")?;
        let cookie = self.write(".erlang.cookie", &secret()?)?;
        fs::set_permissions(cookie, fs::Permissions::from_mode(0o400))?;
        Ok(())
    }

    fn settings(&self, certificates: &Certificates, key: &Path) -> String {
        format!(
            "listeners.tcp.default = 127.0.0.1:{}\nlisteners.ssl.default = 127.0.0.1:{}\n\
             ssl_options.cacertfile = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n\
             ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n\
             loopback_users = none\ndisk_free_limit.absolute = 50MB\nlog.console.level = info\n",
            self.plain_port,
            self.tls_port,
            certificates.authority.display(),
            certificates.server.display(),
            key.display()
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.account.give(&path)?;
        Ok(path)
    }

    /// The environment of the node, its epmd and its tools, which must be equal for them to find each other.
    fn with_environment(&self, mut command: Command) -> Command {
        let files = [
            ("HOME", ""),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_CONFIG_FILES", "conf.d"),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced.config"),
            ("RABBITMQ_CONF_ENV_FILE", "rabbitmq-env.conf"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_MNESIA_BASE", "store"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_PID_FILE", "pid"),
        ];
        command.envs(files.map(|(name, file)| (name, self.folder.join(file))));
        command
            .env("RABBITMQ_NODENAME", format!("campanile_{}@localhost", std::process::id()))
            .env("RABBITMQ_DIST_PORT", self.distribution_port.to_string())
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("-kernel inet_dist_use_interface {{127,0,0,1}} {HEAPS}"),
            )
            // It shares its cores with other programs here.
            .env("RABBITMQ_SCHEDULER_BIND_TYPE", "u")
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // It logs to its output, which is the log that we read.
            .env("RABBITMQ_LOGS", "-")
            // This makes its shell script execute the node instead of staying as its parent, so that signals reach the
            // node.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        command
    }
}

/// The cookie that authenticates nodes and tools.
fn secret() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes")?;
    Ok(u128::from_ne_bytes(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for `rabbitmq-server` that does what the script needs.
    const SERVER: &str = "#!/bin/sh -e\nmkdir \"$RABBITMQ_MNESIA_BASE\"\necho $$ > \"$RABBITMQ_PID_FILE\"\n\
                          echo Server startup complete\nsleep 1000 & wait\n";

    #[test]
    fn node_that_tests_start_again_ends_with_the_others() {
        let group = ProcessGroup::new("node").unwrap();
        let folder = group.folder(NAME).unwrap();
        let (server, log, pid, store) =
            (folder.join("server"), group.log(NAME), folder.join("pid"), folder.join("store"));
        fs::write(&server, SERVER).unwrap();
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&log, "").unwrap();
        let succeeds = |task| {
            let mut shell = group.tool(Account::Ourselves, Path::new("sh"));
            shell.env("RABBITMQ_PID_FILE", &pid).env("RABBITMQ_MNESIA_BASE", &store);
            shell.args(["-c", NODE_SCRIPT, "node"]).arg(&log).arg(READY).arg(&server).arg(task);
            shell.output().unwrap().status.success()
        };

        assert!(!succeeds("kill") && succeeds("start"));
        assert!(!succeeds("start") && !succeeds("wipe") && succeeds("kill"));
        assert!(store.exists() && !succeeds("start"), "the store of the first is in the way");
        assert!(succeeds("wipe") && !store.exists() && succeeds("start"));

        let last = fs::read_to_string(&pid).unwrap();
        group.end();
        let command = fs::read_to_string(format!("/proc/{}/cmdline", last.trim())).unwrap_or_default();
        assert_eq!(command, "", "neither alive nor anything but a trace of it");
    }
}
