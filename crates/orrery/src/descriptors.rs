//! Raises the file descriptor limit, since connections, hosts and commands all need descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any role needs. Programs that close all possible descriptors at start take longer with
/// a higher limit.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit towards the hard limit and returns the new soft limit.
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
