//! Users and groups of a target.

/// Name or id of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountName<'a> {
    Name(&'a str),
    Id(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub gid: u32,
    /// Users with this supplementary group.
    pub members: Vec<String>,
}

impl User {
    /// Parses a line of `/etc/passwd`.
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(':');
        let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let (uid, gid) = (parts.nth(1)?.parse().ok()?, parts.next()?.parse().ok()?);
        let (home, shell) = (parts.nth(1)?.to_owned(), parts.next()?.to_owned());
        Some(User { name, uid, gid, home, shell })
    }

    pub fn is(&self, name: AccountName<'_>) -> bool {
        match name {
            AccountName::Name(name) => self.name == name,
            AccountName::Id(uid) => self.uid == uid,
        }
    }
}

impl Group {
    /// Parses a line of `/etc/group`.
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(':');
        let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let gid = parts.nth(1)?.parse().ok()?;
        let members = parts.next()?.split(',').filter(|member| !member.is_empty());
        Some(Group { name, gid, members: members.map(str::to_owned).collect() })
    }

    pub fn is(&self, name: AccountName<'_>) -> bool {
        match name {
            AccountName::Name(name) => self.name == name,
            AccountName::Id(gid) => self.gid == gid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_files_are_parsed() {
        let user = User::parse("jo:x:1000:100:Jo,,,:/home/jo:/bin/sh").unwrap();
        assert_eq!(
            (user.uid, user.gid, &*user.home, &*user.shell),
            (1000, 100, "/home/jo", "/bin/sh")
        );
        let group = Group::parse("adm:x:4:jo,flo").unwrap();
        assert_eq!((group.gid, group.members), (4, vec!["jo".to_owned(), "flo".to_owned()]));
        assert!(Group::parse("empty:x:5:").unwrap().members.is_empty());
    }

    #[test]
    fn malformed_lines_are_ignored() {
        for line in ["", "jo", "jo:x:many:100:::", ":x:1:1:::", "+::::::"] {
            assert_eq!(User::parse(line), None, "{line}");
        }
        assert_eq!(Group::parse("adm:x"), None);
    }
}
