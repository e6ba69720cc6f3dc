//! The dependency graph of resources, with coordinates.

use std::collections::BTreeMap;

use orrery_model::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::string_enum::string_enums;
use crate::{Time, counts};

string_enums! {
    /// Selection that a graph shows.
    pub enum GraphScope {
        /// All resources that match the filter, or the worst of them.
        All = "all",
        /// Resources that are not deployed, and the paths to their causes.
        Trouble = "trouble",
        /// The neighbours of one resource.
        Focus = "focus",
        /// Groups of resources.
        Groups = "groups",
    }

    /// Property by which resources are grouped.
    pub enum GraphGrouping {
        Type = "type",
        Agent = "agent",
        Set = "set",
        /// No groups.
        None = "none",
    }

    /// Direction of the neighbours.
    pub enum GraphDirection {
        Both = "both",
        /// Requirements only.
        Requires = "requires",
        /// Dependents only.
        Provides = "provides",
    }

    /// Kind of a node.
    pub enum GraphNodeKind {
        Resource = "resource",
        /// Resources of one type with the same drawn neighbours.
        Siblings = "siblings",
        /// Resources with the same type, agent or set.
        Group = "group",
        /// All groups that have no node of their own.
        OtherGroups = "other_groups",
    }
}

/// A part of the dependency graph. Requirements are on the left of their dependents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceGraph {
    pub scope: GraphScope,
    /// Property of the groups; `none` for resources.
    pub group: GraphGrouping,
    /// Number of resources that match the filter.
    pub total: u64,
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
    /// Resources that match the filter and have no part in a node.
    pub left_out: GraphRest,
    /// Number of edges between drawn nodes that are left out, if there are too many.
    pub left_out_edges: u64,
    pub bounds: GraphBounds,
    /// Position in the change feed up to which all changes are included.
    pub position: i64,
    /// Time of the statuses; cached in large environments.
    pub counted_at: Time,
}

/// A node, with the upper left corner of its box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphNode {
    pub kind: GraphNodeKind,
    /// Resource id, that of the first of siblings, or name of the group. Empty for the shared set
    /// and for the other groups.
    pub id: String,
    /// Type, if all resources of the node have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Agent, if all resources of the node have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Identifying value of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Worst status of its resources.
    pub status: Status,
    /// Number of its resources.
    pub count: u64,
    /// Number of its resources by status. Empty for a single resource.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "counts::serialize"
    )]
    pub by_status: BTreeMap<Status, u64>,
    /// Number of groups in `other_groups`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub groups: u64,
    pub x: i32,
    pub y: i32,
    pub w: i32,
    pub h: i32,
    /// Column, counted from the left.
    pub layer: u32,
    /// Number of requirements that are not drawn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden_in: u64,
    /// Number of dependents that are not drawn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden_out: u64,
    /// Members of an opened group, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<GraphCell>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One member of an opened group, or several of a large one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphCell {
    /// Resource id, that of the first of several.
    pub id: String,
    /// Worst status.
    pub status: Status,
    pub count: u64,
}

/// A dependency, or all between two groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphEdge {
    /// Index of the required node.
    pub from: u32,
    /// Index of the dependent node.
    pub to: u32,
    /// Number of dependencies.
    pub n: u64,
    /// True if it points left: it closes a cycle, which grouping can make.
    pub back: bool,
    /// Corners of the line, as x and y in turn; each section is horizontal or vertical.
    pub points: Vec<i32>,
}

/// Resources that are not drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphRest {
    pub nodes: u64,
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<Status, u64>,
}

/// Size of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphBounds {
    pub w: i32,
    pub h: i32,
}
