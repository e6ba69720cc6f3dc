//! Names of machines at their provider, known before a machine exists.

use std::fmt;
use std::str::FromStr;

/// Start of the names of all machines.
const PREFIX: &str = "orr";
/// Longest id of a cluster: names of machines are host names and names of network devices' owners.
const CLUSTER_BYTES_MAX: usize = 40;

/// Name `orr-CLUSTER-NUMBER-INCARNATION`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineName {
    /// Lower-case letters and digits.
    pub cluster: String,
    /// Number of the node.
    pub number: u64,
    pub incarnation: u32,
}

/// A text that is not the name of a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a machine: expected orr-CLUSTER-NUMBER-INCARNATION")]
pub struct MachineNameError(pub String);

impl MachineName {
    /// Creates a name.
    ///
    /// # Errors
    /// If the id of the cluster has other characters than lower-case letters and digits.
    pub fn new(cluster: &str, number: u64, incarnation: u32) -> Result<Self, MachineNameError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_valid = !cluster.is_empty()
            && cluster.len() <= CLUSTER_BYTES_MAX
            && cluster.bytes().all(is_plain);
        if !is_valid {
            return Err(MachineNameError(format!("{PREFIX}-{cluster}-{number}-{incarnation}")));
        }
        Ok(MachineName { cluster: cluster.to_owned(), number, incarnation })
    }

    /// Returns true for a machine of the same node, of any incarnation.
    pub fn is_same_node(&self, other: &MachineName) -> bool {
        self.cluster == other.cluster && self.number == other.number
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}-{}-{}-{}", self.cluster, self.number, self.incarnation)
    }
}

impl FromStr for MachineName {
    type Err = MachineNameError;

    fn from_str(text: &str) -> Result<Self, MachineNameError> {
        let failed = || MachineNameError(text.to_owned());
        let mut parts = text.split('-');
        let (Some(PREFIX), Some(cluster), Some(number), Some(incarnation), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(failed());
        };
        let number = number.parse().map_err(|_| failed())?;
        let incarnation = incarnation.parse().map_err(|_| failed())?;
        let name = MachineName::new(cluster, number, incarnation)?;
        // One machine has one name: no leading zeros or signs.
        if name.to_string() == text { Ok(name) } else { Err(failed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        let name = MachineName::new("k3x", 1000, 2).unwrap();
        assert_eq!(name.to_string(), "orr-k3x-1000-2");
        assert_eq!("orr-k3x-1000-2".parse(), Ok(name));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "orr",
            "orr-a-1",
            "orr-a-1-2-3",
            "orr-A-1-2",
            "orr-a-01-2",
            "orr-../x-1-2",
            "x-a-1-2",
        ] {
            assert!(text.parse::<MachineName>().is_err(), "{text}");
        }
        assert!(MachineName::new("../etc", 1, 1).is_err());
    }
}
