//! Input of the solver: services, machine types and rules, each rule with its name and location.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A request for a layout, independent of its documents.
#[derive(Debug, Clone, Default)]
pub struct LayoutProblem {
    /// Number of nodes.
    pub size: u32,
    /// Sizes that the template allows, for suggestions.
    pub size_range: (Option<u32>, Option<u32>),
    /// Services of the cluster, without duplicates.
    pub services: Vec<ClusterService>,
    /// Usable hardware types.
    pub hardware: Vec<Hardware>,
    /// Names of usable image types.
    pub images: Vec<String>,
    /// Constraints, in the order in which explanations name them.
    pub rules: Vec<Rule>,
    /// Preferred hardware types, best first. Unlisted types come last.
    pub hardware_preference: Vec<String>,
    /// Preferred image types, best first.
    pub image_preference: Vec<String>,
    /// True if cheaper hardware takes precedence over alphabetical order.
    pub prefer_cost: bool,
    /// Strict by default.
    pub mode: SolverMode,
}

/// Treatment of the gaps in the original semantics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SolverMode {
    /// Every requested service runs on at least one node, and the search is complete.
    #[default]
    Strict,
    /// Answers of the original: a service without a minimum may be left out, and a request whose
    /// greedy start does not reach its size is refused.
    Compatible,
}

/// A service of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterService {
    pub name: String,
}

impl ClusterService {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// A hardware type with the properties of its machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware {
    pub name: String,
    /// Price of one machine, in millionths.
    pub cost: Option<u64>,
    /// Thousandths of a processor; absent means unlimited.
    pub cpu: Option<u64>,
    /// Thousandths of the administrator's unit of memory; absent means unlimited.
    pub memory: Option<u64>,
    /// Labels such as `zone` or `rack`.
    pub labels: BTreeMap<String, String>,
}

impl Hardware {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A constraint with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub kind: RuleKind,
    pub location: RuleLocation,
}

impl Rule {
    pub fn new(kind: RuleKind, location: RuleLocation) -> Self {
        Self { kind, location }
    }
}

/// A location in a document or in the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleLocation {
    /// Kind and name of the document, such as `template web` or `the request`.
    pub document: String,
    /// JSON pointer of the value, such as `/constraints/services/app/quantities/min`.
    pub path: String,
    /// File and span of the value, if it is in a document.
    pub source: Option<crate::document::DocumentLocation>,
}

impl RuleLocation {
    pub fn new(document: impl Into<String>, path: impl Into<String>) -> Self {
        Self { document: document.into(), path: path.into(), source: None }
    }
}

impl fmt::Display for RuleLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "{}", self.document)
        } else {
            write!(f, "{} {}", self.document, self.path)
        }
    }
}

/// Kinds of constraints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleKind {
    /// The service was requested, so it runs on at least one node. Strict mode only.
    Requested { service: String },
    /// At least `count` nodes run the service.
    Min { service: String, count: u32 },
    /// At most `count` nodes run the service.
    Max { service: String, count: u32 },
    /// The number of nodes with the service is a multiple of `step`.
    Step { service: String, step: u32 },
    /// At least one `service` for every `per` instances of `of`: count(service) >= ceil(count(of) /
    /// per).
    Ratio { service: String, of: String, per: u32 },
    /// The services run on the same nodes.
    MustCoexist { services: BTreeSet<String> },
    /// No node runs all of the services.
    CannotCoexist { services: BTreeSet<String> },
    /// The service runs on these hardware types only.
    HardwareTypes { service: String, types: BTreeSet<String> },
    /// The service runs on these image types only.
    ImageTypes { service: String, types: BTreeSet<String> },
    /// One instance of the service occupies this much of its node.
    Capacity {
        service: String,
        /// Thousandths of a processor.
        cpu: u64,
        /// Thousandths of the administrator's unit of memory.
        memory: u64,
    },
    /// The services listen on the same port, so no node runs two of them.
    Port { port: u16, services: BTreeSet<String> },
    /// At most `max` nodes with the service have the same value of the label. Nodes whose hardware
    /// type lacks the label do not run the service.
    AntiAffinity { service: String, label: String, max: u32 },
    /// The service has an entry without limits, which only makes its placement optional for a node.
    Placed { service: String },
}

impl RuleKind {
    /// Services that the rule names. They are not placed on every node by default.
    pub fn services(&self) -> Vec<&str> {
        match self {
            Self::Requested { service }
            | Self::Min { service, .. }
            | Self::Max { service, .. }
            | Self::Step { service, .. }
            | Self::HardwareTypes { service, .. }
            | Self::ImageTypes { service, .. }
            | Self::Capacity { service, .. }
            | Self::AntiAffinity { service, .. }
            | Self::Placed { service } => vec![service],
            Self::Ratio { service, of, .. } => vec![service, of],
            Self::MustCoexist { services }
            | Self::CannotCoexist { services }
            | Self::Port { services, .. } => services.iter().map(String::as_str).collect(),
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Self::Requested { service } => write!(f, "{service} is requested, so it needs a node"),
            Self::Min { service, count } => write!(f, "{service} on at least {}", nodes(*count)),
            Self::Max { service, count } => write!(f, "{service} on at most {}", nodes(*count)),
            Self::Step { service, step } => {
                write!(f, "{service} on a multiple of {step} nodes")
            }
            Self::Ratio { service, of, per } => {
                write!(f, "at least one {service} for every {per} {of}")
            }
            Self::MustCoexist { services } => {
                write!(f, "{} always share their nodes", list(services))
            }
            Self::CannotCoexist { services } if services.len() == 1 => {
                write!(f, "{} may not be on any node", list(services))
            }
            Self::CannotCoexist { services } => write!(f, "{} never share a node", list(services)),
            Self::HardwareTypes { service, types } => {
                write!(f, "{service} only on hardware {}", list(types))
            }
            Self::ImageTypes { service, types } => {
                write!(f, "{service} only on image {}", list(types))
            }
            Self::Capacity { service, cpu, memory } => {
                write!(f, "{service} needs ")?;
                if *cpu > 0 {
                    write!(f, "{} vcpu", decimal(*cpu))?;
                }
                if *cpu > 0 && *memory > 0 {
                    write!(f, " and ")?;
                }
                if *memory > 0 || *cpu == 0 {
                    write!(f, "{} ram", decimal(*memory))?;
                }
                Ok(())
            }
            Self::Port { port, services } => {
                write!(f, "{} all listen on port {port}", list(services))
            }
            Self::AntiAffinity { service, label, max } => {
                write!(f, "at most {max} {service} for each {label}")
            }
            Self::Placed { service } => write!(f, "{service} has an entry without limits"),
        }
    }
}

/// "1 node", "2 nodes".
pub(crate) fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Thousandths without trailing zeros.
fn decimal(value: u64) -> String {
    if value.is_multiple_of(1000) {
        return (value / 1000).to_string();
    }
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').to_owned()
}

/// One kind of node: its hardware and image type and its services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeLayout {
    pub hardware: String,
    pub image: String,
    pub services: BTreeSet<String>,
}

/// Equal nodes of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    pub layout: NodeLayout,
    pub count: u32,
}

/// A layout that satisfies all rules, most preferred nodes first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Solution {
    pub groups: Vec<NodeGroup>,
    /// Requested services that run on no node. Always empty in strict mode.
    pub unplaced: Vec<String>,
    /// Price of all machines in millionths, if every hardware type has one.
    pub cost: Option<u64>,
}

impl Solution {
    /// Number of nodes.
    pub fn size(&self) -> u32 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Number of nodes that run the service.
    pub fn count(&self, service: &str) -> u32 {
        self.groups
            .iter()
            .filter(|group| group.layout.services.contains(service))
            .map(|group| group.count)
            .sum()
    }
}
