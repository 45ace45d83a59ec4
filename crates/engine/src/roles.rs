//! The parts of the pipeline that an instance runs. Any number of instances may run any of them against one database
//! and one broker.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Api,
    FanOut,
    Publish,
    Receive,
    Send,
    /// Reserved for bulk mailings.
    Mailings,
    Recover,
}

impl Role {
    pub const ALL: [Role; 7] =
        [Role::Api, Role::FanOut, Role::Publish, Role::Receive, Role::Send, Role::Mailings, Role::Recover];

    /// The roles that the pipeline needs: if no instance runs one of them, work waits forever.
    const PIPELINE: [Role; 5] = [Role::FanOut, Role::Publish, Role::Receive, Role::Send, Role::Recover];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::FanOut => "fan_out",
            Role::Publish => "publish",
            Role::Receive => "receive",
            Role::Send => "send",
            Role::Mailings => "mailings",
            Role::Recover => "recover",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(Vec<Role>);

impl Roles {
    pub fn all() -> Self {
        Roles(Role::ALL.to_vec())
    }

    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Whether this instance connects to the broker.
    pub fn use_broker(&self) -> bool {
        self.has(Role::Publish) || self.has(Role::Receive)
    }

    /// The roles of the pipeline that other instances must run.
    pub fn missing(&self) -> Vec<Role> {
        Role::PIPELINE.into_iter().filter(|role| !self.has(*role)).collect()
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Role::ALL.map(Role::as_str).join(", ");
        let role = |word: &str| {
            let found = Role::ALL.into_iter().find(|role| role.as_str() == word);
            found.ok_or_else(|| format!("`{word}` is not a role; use one or more of {}", known()))
        };
        let mut roles = text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(role);
        let roles: Vec<Role> = roles.by_ref().collect::<Result<_, _>>()?;
        if roles.is_empty() { Ok(Roles::all()) } else { Ok(Roles(roles)) }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_from_words() {
        assert_eq!("".parse(), Ok(Roles::all()));
        assert_eq!("api, fan_out".parse(), Ok(Roles(vec![Role::Api, Role::FanOut])));
        let error = "api,publisher".parse::<Roles>().unwrap_err();
        assert!(error.contains("`publisher`") && error.contains("fan_out"), "{error}");
        assert_eq!(Roles::all().to_string().parse(), Ok(Roles::all()));
    }

    #[test]
    fn what_is_left_to_others_is_known() {
        assert_eq!(Roles::all().missing(), []);
        let roles: Roles = "api,receive".parse().unwrap();
        assert_eq!(roles.missing(), [Role::FanOut, Role::Publish, Role::Send, Role::Recover]);
        assert!(roles.use_broker());
    }
}
