//! Installs Debian's packages if a server's program is missing and the user may install; otherwise it says what to
//! install.
//!
//! A package may start a server for the whole machine, which is left alone.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::programs::{self, Missing, SearchPaths};
use super::{BROKER_URL, DATABASE_URL, Wanted};
use crate::run::{headline, within, works};

const LIMIT: Duration = Duration::from_mins(15);

/// The permission to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Root,
    /// `sudo` without a password.
    Sudo,
    None,
}

pub fn whatever_is_missing(wanted: Wanted) -> Result<()> {
    let Err(missing) = programs::find(&SearchPaths::of_this_machine(), wanted) else { return Ok(()) };
    install_packages(&missing)?;
    match programs::find(&SearchPaths::of_this_machine(), wanted) {
        Ok(_) => Ok(()),
        Err(missing) => bail!("Debian's packages are not sufficient: {}", request(&missing)),
    }
}

/// Installs the packages of these programs.
pub fn install_packages(missing: &[Missing]) -> Result<()> {
    install(missing, right())
}

fn right() -> Right {
    if !works(command("apt-get", &["--version"])) {
        Right::None
    } else if rustix::process::geteuid().is_root() {
        Right::Root
    } else if works(command("sudo", &["-n", "true"])) {
        Right::Sudo
    } else {
        Right::None
    }
}

fn install(missing: &[Missing], right: Right) -> Result<()> {
    let packages = packages(missing);
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(&packages);
    let (Some(install), Some(update)) = (apt_get(right, &arguments), apt_get(right, &["update"])) else {
        bail!(request(missing));
    };
    headline(&format!("Install: {}", packages.join(", ")));
    if within(LIMIT, "the installation", &install).is_ok() {
        return Ok(());
    }
    headline("Install: retrying after apt-get update");
    within(LIMIT, "`apt-get update`", &update)?;
    within(LIMIT, "the installation", &install)
}

/// A call of `apt-get`, or `None` without permission.
fn apt_get(right: Right, arguments: &[&str]) -> Option<Command> {
    let mut apt_get = match right {
        Right::Root => Command::new("env"),
        Right::Sudo => command("sudo", &["-n", "env"]),
        Right::None => return None,
    };
    // Two runs may start at once on a new machine; the second one waits for the lock.
    apt_get
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=600"])
        .args(arguments);
    Some(apt_get)
}

/// A request to the user to install what is missing.
pub fn request(missing: &[Missing]) -> String {
    let what: Vec<&str> = missing.iter().map(|it| it.what).collect();
    format!(
        "the tests need {}. Install what is missing:\n\n    \
         apt-get install -y --no-install-recommends {}\n\n\
         Servers that are there already can be named by {DATABASE_URL} and {BROKER_URL}",
        what.join(", "),
        packages(missing).join(" ")
    )
}

fn packages(missing: &[Missing]) -> Vec<&'static str> {
    missing.iter().map(|it| it.package).collect()
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: [Missing; 2] = [
        Missing { what: "PgBouncer", package: "pgbouncer" },
        Missing { what: "RabbitMQ 3.10 or newer", package: "rabbitmq-server" },
    ];

    fn shown(right: Right) -> Option<String> {
        let command = apt_get(right, &["install", "x"])?;
        let parts = std::iter::once(command.get_program()).chain(command.get_args());
        Some(parts.map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn who_may_not_install_is_told_what_to_install() {
        let error = install(&MISSING, Right::None).unwrap_err().to_string();
        assert!(error.contains("need PgBouncer, RabbitMQ 3.10 or newer."), "{error}");
        assert!(
            error.contains("apt-get install -y --no-install-recommends pgbouncer rabbitmq-server\n"),
            "{error}"
        );
        assert!(error.contains(DATABASE_URL) && error.contains(BROKER_URL), "{error}");
    }

    #[test]
    fn packages_are_installed_as_root_and_never_ask() {
        let apt_get = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install x";
        assert_eq!(shown(Right::Root).as_deref(), Some(apt_get));
        assert_eq!(shown(Right::Sudo), Some(format!("sudo -n {apt_get}")));
        assert_eq!(shown(Right::None), None);
    }
}
