//! Removal of privileges: identity, capabilities, descriptors and limits.

use std::fs;
use std::io;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::policy::{Message, SandboxPolicy};
use crate::setup_error::{SetupError, Step};

/// Descriptor flag: close on exec.
const CLOSED_ON_EXEC: u32 = 0o2_000_000;

/// Changes to the policy's user permanently, and drops all privileges.
pub(crate) fn drop_all(policy: &SandboxPolicy) -> Result<(), SetupError> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        setgroups(&[]).step("giving up groups")?;
        for capability in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // Unknown to this kernel.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error).step("giving up capabilities"),
            }
        }
        if let Some(number) = policy.uid {
            let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
            setresgid(gid, gid, gid).step("changing the group")?;
            setresuid(uid, uid, uid).step("changing the user")?;
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).step("giving up capabilities")?;
    rustix::thread::set_no_new_privs(true).step("giving up new privileges")
}

/// Closes inheritable descriptors except the standard streams.
pub(crate) fn close_descriptors() -> Result<(), SetupError> {
    let numbers = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let all: Vec<i32> =
        fs::read_dir("/proc/self/fd").step("/proc/self/fd")?.filter_map(numbers).collect();
    for number in all.into_iter().filter(|number| *number > 2) {
        // A closed one belonged to the directory listing.
        let Ok(text) = fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else { continue };
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        if flags.is_none_or(|flags| flags & CLOSED_ON_EXEC == 0) {
            let _ = nix::unistd::close(number);
        }
    }
    Ok(())
}

/// Sets limits for each process, and total limits that no control group sets.
pub(crate) fn limit(message: &Message) -> Result<(), SetupError> {
    let limits = &message.policy.limits;
    let mut all = vec![
        (Resource::Core, 0),
        (Resource::Nofile, limits.descriptors),
        (Resource::Fsize, limits.file_size),
    ];
    all.extend(limits.memory.map(|bytes| (Resource::Data, bytes)));
    if !message.processes_are_limited {
        all.push((Resource::Nproc, limits.processes));
    }
    for (resource, value) in all {
        let hard = getrlimit(resource).maximum;
        let value = Some(hard.map_or(value, |hard| hard.min(value)));
        setrlimit(resource, Rlimit { current: value, maximum: value }).step("limits")?;
    }
    if message.policy.nice > 0 {
        // Niceness is a courtesy, not a protection.
        let _ = rustix::process::setpriority_process(None, i32::from(message.policy.nice.min(19)));
    }
    Ok(())
}
