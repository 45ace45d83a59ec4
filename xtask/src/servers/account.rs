//! The account that a server runs as. PostgreSQL and PgBouncer refuse to run as root, so root runs them under the
//! account of their package.
//!
//! Other users run all servers as themselves.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    Ourselves,
    Other { user: u32, group: u32 },
}

/// The signal that a server gets when its keeper has ended.
#[derive(Debug, Clone, Copy)]
pub enum Last {
    Kill,
    /// Makes PostgreSQL abort: if it were killed, it would leave shared memory behind.
    Quit,
}

impl Account {
    pub fn of(name: &str) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        listed(&users, name).with_context(|| {
            format!("there is no user `{name}`, whom Debian's package creates; root cannot run it as itself")
        })
    }

    /// A program that gets this signal from the kernel when the thread that started it has ended.
    ///
    /// The kernel drops this setting when the user changes, so `setpriv` changes the user first.
    pub fn server(self, last: Last, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(self.change()).arg("--pdeathsig").arg(last.name()).arg("--").arg(program);
        command
    }

    /// A program that ends by itself.
    pub fn tool(self, program: &Path) -> Command {
        if self == Self::Ourselves {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(self.change()).arg("--").arg(program);
        command
    }

    pub fn give(self, path: &Path) -> Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Other { user, group } => chown(path, Some(user), Some(group))
                .with_context(|| format!("cannot give {} to user {user}", path.display())),
        }
    }

    fn change(self) -> Vec<String> {
        match self {
            Self::Ourselves => Vec::new(),
            Self::Other { user, group } => {
                vec![format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]
            }
        }
    }
}

impl Last {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Quit => "QUIT",
        }
    }
}

/// Finds a user in the lines of `/etc/passwd`: name, password, user id, group id, and other fields.
fn listed(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let user = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Account::Other { user, group })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/:/bin/sh\npostgres:x:101:103:,,,:/var/lib/postgresql:/bin/bash\n";

    fn shown(command: &Command) -> Vec<&str> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|part| part.to_str().unwrap())
            .collect()
    }

    #[test]
    fn users_are_found_by_their_whole_name() {
        assert_eq!(listed(USERS, "postgres"), Some(Account::Other { user: 101, group: 103 }));
        assert_eq!(listed(USERS, "post"), None);
        assert_eq!(listed("postgres:x", "postgres"), None);
    }

    #[test]
    fn server_asks_for_its_death_after_the_change_of_user() {
        let other = Account::Other { user: 101, group: 103 };
        assert_eq!(
            shown(&other.server(Last::Kill, Path::new("/bin/true"))),
            [
                "setpriv",
                "--reuid=101",
                "--regid=103",
                "--clear-groups",
                "--pdeathsig",
                "KILL",
                "--",
                "/bin/true"
            ]
        );
        assert_eq!(
            shown(&Account::Ourselves.server(Last::Kill, Path::new("/bin/true"))),
            ["setpriv", "--pdeathsig", "KILL", "--", "/bin/true"]
        );
    }

    #[test]
    fn tools_do_not_die_with_whoever_calls_them() {
        let other = Account::Other { user: 101, group: 103 };
        assert!(!shown(&other.tool(Path::new("/bin/true"))).contains(&"--pdeathsig"));
        assert_eq!(shown(&Account::Ourselves.tool(Path::new("/bin/true"))), ["/bin/true"]);
    }
}
