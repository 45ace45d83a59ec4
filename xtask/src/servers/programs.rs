//! Finds the servers' programs on this machine, or the Debian packages that contain them.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Wanted;
use crate::run;

const POSTGRESQL_MAJOR: u32 = 15;
const RABBITMQ_VERSION: (u32, u32) = (3, 10);

/// The programs that were found.
#[derive(Debug)]
pub struct Programs {
    pub openssl: PathBuf,
    /// A library that gives a process another clock.
    pub faketime: PathBuf,
    /// Counts instructions, which are the same on a busy machine.
    pub valgrind: PathBuf,
    /// Postfix's test server; `smtp-source` is in the same folder.
    pub smtp_sink: PathBuf,
    /// Python with aiosmtpd, another mail server.
    pub python: PathBuf,
    pub database: Option<DatabasePrograms>,
    pub broker: Option<BrokerPrograms>,
}

#[derive(Debug)]
pub struct DatabasePrograms {
    /// The folder of `initdb`, `postgres` and `pg_ctl`.
    pub postgresql: PathBuf,
    pub pgbouncer: PathBuf,
}

#[derive(Debug)]
pub struct BrokerPrograms {
    /// The folder of `rabbitmq-server` and `rabbitmqctl`.
    pub rabbitmq: PathBuf,
    pub epmd: PathBuf,
}

/// A program that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    pub what: &'static str,
    pub package: &'static str,
}

const OPENSSL: Missing = Missing { what: "openssl", package: "openssl" };
const FAKETIME: Missing = Missing { what: "libfaketime", package: "libfaketime" };
const VALGRIND: Missing = Missing { what: "Valgrind", package: "valgrind" };
const POSTFIX: Missing = Missing { what: "Postfix's smtp-sink", package: "postfix" };
const AIOSMTPD: Missing = Missing { what: "aiosmtpd for Debian's Python", package: "python3-aiosmtpd" };
const POSTGRESQL: Missing = Missing { what: "PostgreSQL 15 or newer", package: "postgresql" };
const PGBOUNCER: Missing = Missing { what: "PgBouncer", package: "pgbouncer" };
const RABBITMQ: Missing = Missing { what: "RabbitMQ 3.10 or newer", package: "rabbitmq-server" };

/// Where to search.
#[derive(Debug)]
pub struct SearchPaths {
    /// Contains a folder per major version, each with its `bin`.
    postgresql: PathBuf,
    /// Scripts that run under any account; those in the search path insist on root or `rabbitmq`.
    rabbitmq: PathBuf,
    /// Contains a folder per architecture.
    libraries: PathBuf,
    /// Debian's Python: its interpreter, and the folder of its packages.
    python: PathBuf,
    python_packages: PathBuf,
    search_path: Vec<PathBuf>,
}

impl SearchPaths {
    pub fn of_this_machine() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Debian's search path of ordinary users has no daemons.
        let daemons = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        Self {
            postgresql: "/usr/lib/postgresql".into(),
            rabbitmq: "/usr/lib/rabbitmq/bin".into(),
            libraries: "/usr/lib".into(),
            python: "/usr/bin/python3".into(),
            python_packages: "/usr/lib/python3/dist-packages".into(),
            search_path: std::env::split_paths(&path).chain(daemons).collect(),
        }
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.search_path.iter().map(|folder| folder.join(name)).find(|program| program.is_file())
    }
}

pub fn find(paths: &SearchPaths, wanted: Wanted) -> Result<Programs, Vec<Missing>> {
    let mut missing = Vec::new();
    let openssl = paths.program("openssl").ok_or(OPENSSL).map_err(|it| missing.push(it));
    let faketime = faketime(paths).ok_or(FAKETIME).map_err(|it| missing.push(it));
    let valgrind = paths.program("valgrind").ok_or(VALGRIND).map_err(|it| missing.push(it));
    let smtp_sink = paths.program("smtp-sink").ok_or(POSTFIX).map_err(|it| missing.push(it));
    let python = aiosmtpd(paths).ok_or(AIOSMTPD).map_err(|it| missing.push(it));
    let database = wanted.database.then(|| {
        let postgresql = postgresql(paths).ok_or(POSTGRESQL).map_err(|it| missing.push(it));
        let pgbouncer = paths.program("pgbouncer").ok_or(PGBOUNCER).map_err(|it| missing.push(it));
        Ok::<_, ()>(DatabasePrograms { postgresql: postgresql?, pgbouncer: pgbouncer? })
    });
    let broker = wanted.broker.then(|| {
        // RabbitMQ depends on Erlang, which contains epmd.
        let both = rabbitmq(paths).zip(paths.program("epmd"));
        let (rabbitmq, epmd) = both.ok_or(RABBITMQ).map_err(|it| missing.push(it))?;
        Ok::<_, ()>(BrokerPrograms { rabbitmq, epmd })
    });
    match (openssl, faketime, valgrind, smtp_sink, python, database.transpose(), broker.transpose()) {
        (Ok(openssl), Ok(faketime), Ok(valgrind), Ok(smtp_sink), Ok(python), Ok(database), Ok(broker)) => {
            Ok(Programs { openssl, faketime, valgrind, smtp_sink, python, database, broker })
        }
        _ => Err(missing),
    }
}

/// Only Debian's own Python finds its packages.
fn aiosmtpd(paths: &SearchPaths) -> Option<PathBuf> {
    let is_installed = paths.python_packages.join("aiosmtpd").is_dir() && paths.python.exists();
    is_installed.then(|| paths.python.clone())
}

/// For this architecture: a process ignores libraries of others.
fn faketime(paths: &SearchPaths) -> Option<PathBuf> {
    let architectures = fs::read_dir(&paths.libraries).into_iter().flatten().flatten();
    architectures
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(ARCH)))
        .map(|entry| entry.path().join("faketime/libfaketime.so.1"))
        .find(|library| library.is_file())
}

/// The newest of Debian's versions, several of which may be installed, or the one in the search path.
fn postgresql(paths: &SearchPaths) -> Option<PathBuf> {
    let versions = fs::read_dir(&paths.postgresql).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(major, folder): &(u32, PathBuf)| {
            *major >= POSTGRESQL_MAJOR && folder.join("initdb").is_file()
        })
        .max_by_key(|(major, _)| *major);
    if let Some((_, folder)) = newest {
        return Some(folder);
    }
    // `initdb` must be resolved, because a link to it would not find its sibling programs.
    let initdb = paths.program("initdb")?.canonicalize().ok()?;
    let version = run::output(Command::new(&initdb).arg("--version")).ok()?;
    (postgresql_major(&version)? >= POSTGRESQL_MAJOR).then(|| initdb.parent().map(Path::to_owned))?
}

/// Reads `initdb (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`.
fn postgresql_major(version: &str) -> Option<u32> {
    let (_, number) = version.split_once("(PostgreSQL) ")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn rabbitmq(paths: &SearchPaths) -> Option<PathBuf> {
    let debian = paths.rabbitmq.join("rabbitmq-server");
    let server = if debian.is_file() { debian } else { paths.program("rabbitmq-server")? };
    let version = rabbitmq_version(&server.canonicalize().ok()?);
    // An unknown version is accepted. Asking would start an Erlang machine and take a second.
    let recent = version.is_none_or(|version| version >= RABBITMQ_VERSION);
    recent.then(|| server.parent().map(Path::to_owned))?
}

/// Reads `…/rabbitmq_server-3.10.8/sbin/rabbitmq-server`.
fn rabbitmq_version(server: &Path) -> Option<(u32, u32)> {
    let version = server.iter().find_map(|part| part.to_str()?.strip_prefix("rabbitmq_server-"))?;
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted { database: true, broker: true };

    /// A machine that has only these files.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("campanile-machine-{name}-{}", std::process::id()));
            for file in files {
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            Self(root)
        }

        fn paths(&self) -> SearchPaths {
            SearchPaths {
                postgresql: self.0.join("postgresql"),
                rabbitmq: self.0.join("rabbitmq"),
                libraries: self.0.join("lib"),
                python: self.0.join("bin/python3"),
                python_packages: self.0.join("python"),
                search_path: vec![self.0.join("bin")],
            }
        }

        fn missing(&self, wanted: Wanted) -> Vec<&'static str> {
            find(&self.paths(), wanted)
                .map_or_else(|missing| missing.iter().map(|it| it.package).collect(), |_| vec![])
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TOOLS: [&str; 5] =
        ["bin/openssl", "bin/valgrind", "bin/smtp-sink", "bin/python3", "python/aiosmtpd/smtp.py"];

    fn library_of(architecture: &str) -> String {
        format!("lib/{architecture}-linux-gnu/faketime/libfaketime.so.1")
    }

    #[test]
    fn everything_is_missing_on_an_empty_machine() {
        let machine = Machine::new("empty", &[]);
        assert_eq!(
            machine.missing(ALL),
            [
                "openssl",
                "libfaketime",
                "valgrind",
                "postfix",
                "python3-aiosmtpd",
                "postgresql",
                "pgbouncer",
                "rabbitmq-server"
            ]
        );
    }

    #[test]
    fn only_what_is_wanted_can_be_missing() {
        let machine = Machine::new("bare", &[&TOOLS[..], &[&library_of(ARCH)]].concat());
        assert_eq!(machine.missing(Wanted { database: false, broker: true }), ["rabbitmq-server"]);
        assert_eq!(machine.missing(Wanted { database: true, broker: false }), ["postgresql", "pgbouncer"]);
    }

    #[test]
    fn newest_postgresql_is_taken() {
        let machine = Machine::new(
            "several",
            &[
                "postgresql/9.6/bin/initdb",
                "postgresql/15/bin/initdb",
                "postgresql/17/bin/initdb",
                "postgresql/18/doc",
            ],
        );
        assert_eq!(postgresql(&machine.paths()), Some(machine.0.join("postgresql/17/bin")));
    }

    #[test]
    fn old_postgresql_counts_as_missing() {
        let machine = Machine::new("old", &["postgresql/14/bin/initdb"]);
        assert_eq!(postgresql(&machine.paths()), None);
    }

    #[test]
    fn library_of_another_architecture_is_not_taken() {
        let machine = Machine::new("foreign", &[&library_of("pdp11")]);
        assert_eq!(faketime(&machine.paths()), None);
    }

    #[test]
    fn complete_machine_has_all() {
        let machine = Machine::new(
            "complete",
            &[
                &TOOLS[..],
                &[
                    &library_of(ARCH),
                    "bin/pgbouncer",
                    "bin/epmd",
                    "postgresql/16/bin/initdb",
                    "rabbitmq/rabbitmq-server",
                ],
            ]
            .concat(),
        );
        assert!(machine.missing(ALL).is_empty());
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(postgresql_major("initdb (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)\n"), Some(15));
        assert_eq!(postgresql_major("initdb (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(postgresql_major("mysqld 8"), None);
        let server = |version| PathBuf::from(format!("/opt/rabbitmq_server-{version}/sbin/rabbitmq-server"));
        assert_eq!(rabbitmq_version(&server("3.10.8")), Some((3, 10)));
        assert!(rabbitmq_version(&server("3.9.13")).unwrap() < RABBITMQ_VERSION);
        assert!(rabbitmq_version(&server("4.1.0")).unwrap() > RABBITMQ_VERSION);
        assert_eq!(rabbitmq_version(Path::new("/usr/sbin/rabbitmq-server")), None);
    }
}
