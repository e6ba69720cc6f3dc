//! Facts of a machine, collected by one script.

use std::net::IpAddr;
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, TransportError, TransportErrorKind};

use crate::transport::SshTransport;

/// Prints one fact a line, `name value`; what a machine does not offer is left out.
const SCRIPT: &str = r#"
say() { [ -z "$2" ] || printf '%s %s\n' "$1" "$2"; }
say kernel "$(uname -s)"
say kernel_release "$(uname -r)"
say arch "$(uname -m)"
say host_name "$(uname -n)"
say user "$(id -un 2>/dev/null)"
say uid "$(id -u)"
if [ -r /etc/os-release ]; then
    say os "$(. /etc/os-release; printf %s "$ID")"
    say os_version "$(. /etc/os-release; printf %s "$VERSION_ID")"
    say os_name "$(. /etc/os-release; printf %s "$PRETTY_NAME")"
fi
if [ -r /proc/meminfo ]; then
    while read -r name value unit; do
        [ "$name" != MemTotal: ] || say memory_kib "$value"
    done </proc/meminfo
fi
say processors "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
for address in $(hostname -I 2>/dev/null || hostname -i 2>/dev/null); do say address "$address"; done
df -kP 2>/dev/null | while read -r device size used free share place; do
    case $device in /dev/*) say mount "$size $free $place" ;; esac
done
if command -v sudo >/dev/null 2>&1; then say offers sudo; fi
if command -v doas >/dev/null 2>&1; then say offers doas; fi
exit 0
"#;

const TIME: Duration = Duration::from_secs(60);
const OUTPUT_BYTES: usize = 64 * 1024;
/// Longest list and longest text that a machine may report.
const ITEMS_MAX: usize = 256;
const TEXT_MAX: usize = 256;

/// Facts of a machine. What it does not tell is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MachineFacts {
    /// Kernel name: `Linux`.
    pub kernel: Option<String>,
    pub kernel_release: Option<String>,
    /// Machine of `uname`: `x86_64`.
    pub arch: Option<String>,
    pub host_name: Option<String>,
    /// Identifier of the operating system: `debian`.
    pub os: Option<String>,
    pub os_version: Option<String>,
    /// Name of the operating system for people.
    pub os_name: Option<String>,
    /// Remote user.
    pub user: Option<String>,
    pub uid: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub processors: Option<u32>,
    pub addresses: Vec<IpAddr>,
    pub mounts: Vec<MountFact>,
    /// Programs for privilege that are installed: `sudo`, `doas`.
    pub privilege_programs: Vec<String>,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MountFact {
    pub path: String,
    pub size_bytes: u64,
    pub free_bytes: u64,
}

impl SshTransport {
    /// Collects the facts of the machine.
    ///
    /// # Errors
    /// If the machine is not reached, or does not answer.
    pub fn facts(&self, stop: &CancelToken) -> Result<MachineFacts, TransportError> {
        let limits = ExecLimits { timeout: Some(TIME), output_bytes: OUTPUT_BYTES };
        let output = self.exec_as_user(SCRIPT, &limits, stop)?;
        if !output.success() {
            let reason = format!("cannot read its facts: {}", output.error_excerpt());
            let destination = orrery_handlers::target::Transport::destination(self);
            return Err(TransportError::new(TransportErrorKind::Refused, destination, reason));
        }
        Ok(MachineFacts::parse(&output.stdout_text()))
    }
}

impl MachineFacts {
    /// Parses the output of the script. A machine may print anything: unknown and oversized lines
    /// are skipped.
    fn parse(text: &str) -> Self {
        let mut facts = MachineFacts::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let fits = value.len() <= TEXT_MAX && !value.contains(char::is_control);
            let text = || fits.then(|| value.to_owned());
            match name {
                "kernel" => facts.kernel = text(),
                "kernel_release" => facts.kernel_release = text(),
                "arch" => facts.arch = text(),
                "host_name" => facts.host_name = text(),
                "os" => facts.os = text(),
                "os_version" => facts.os_version = text(),
                "os_name" => facts.os_name = text(),
                "user" => facts.user = text(),
                "uid" => facts.uid = value.parse().ok(),
                "memory_kib" => {
                    facts.memory_bytes =
                        value.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
                }
                "processors" => facts.processors = value.parse().ok(),
                "address" if facts.addresses.len() < ITEMS_MAX => {
                    facts.addresses.extend(value.parse::<IpAddr>());
                }
                "mount" if facts.mounts.len() < ITEMS_MAX => {
                    facts.mounts.extend(text().as_deref().and_then(MountFact::parse));
                }
                "offers" if ["sudo", "doas"].contains(&value) => {
                    facts.privilege_programs.push(value.to_owned());
                }
                _ => {}
            }
        }
        facts.privilege_programs.truncate(2);
        facts
    }
}

impl MountFact {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let mut bytes = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        let (size_bytes, free_bytes) = (bytes()?, bytes()?);
        let path = words.next()?.to_owned();
        Some(MountFact { path, size_bytes, free_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_parsed_and_odd_lines_skipped() {
        let facts = MachineFacts::parse(
            "kernel Linux\narch x86_64\nuid 0\nmemory_kib 2048\nprocessors 4\naddress 192.0.2.1\n\
             address 2001:db8::1\naddress nonsense\nmount 100 50 /srv/with space\nmount x y z\n\
             offers sudo\noffers rm\nos_name Debian GNU/Linux 12 (bookworm)\nnoise\nuser \u{7}bell\n",
        );
        assert_eq!(facts.kernel.as_deref(), Some("Linux"));
        assert_eq!((facts.uid, facts.memory_bytes), (Some(0), Some(2048 * 1024)));
        assert_eq!(facts.addresses.len(), 2);
        let mount = MountFact {
            path: "/srv/with space".to_owned(),
            size_bytes: 102_400,
            free_bytes: 51_200,
        };
        assert_eq!(facts.mounts, [mount]);
        assert_eq!(facts.privilege_programs, ["sudo"]);
        assert_eq!(facts.os_name.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(facts.user, None);
    }

    #[test]
    fn a_machine_cannot_report_without_bound() {
        let flood = "address 192.0.2.1\noffers sudo\n".repeat(10_000);
        let facts = MachineFacts::parse(&flood);
        assert_eq!((facts.addresses.len(), facts.privilege_programs.len()), (256, 2));
    }
}
