//! File descriptors of this process: as many as the system lets it have, since connections, hosts and commands all need some.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any role needs; programs that close every possible descriptor when they start take time for each.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit as far as the hard one allows, and returns what it is then.
pub(crate) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let soft = current.unwrap_or(u64::MAX);
    let wanted = maximum.unwrap_or(u64::MAX).min(ENOUGH);
    if soft >= wanted {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_and_not_beyond_what_is_enough() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let now = raise_limit();
        assert!(now >= most.min(ENOUGH), "{now} of {most}");
        assert_eq!(raise_limit(), now);
    }
}
