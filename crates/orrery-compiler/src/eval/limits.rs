//! The bounds that turn a model without an end into an error, which names the chain of instances
//! that made each other.

use crate::error::CompileError;
use crate::ir::ExprId;
use crate::project::Limits;
use crate::value::{InstanceId, Value};

use super::{Cell, Delayed, Frame, Instance, Machine, NONE, Temp, Unit, Waiter};

/// How many links of the chain a message shows.
const CHAIN_SHOWN: usize = 5;

/// How deeply values may be nested. What reads them, such as `repr`, goes as deep.
const DEPTH_MAX: u32 = 100_000;

impl Machine<'_> {
    /// Whether the last step went too far. It is asked after every step: the whole is added up only
    /// now and then, but a single step can make a value of any size.
    pub(super) fn went_too_far(&mut self) -> bool {
        self.steps = self.steps.wrapping_add(1);
        let memory = if self.steps.is_multiple_of(64) { self.memory() } else { self.heap.bytes() };
        memory > self.limits.memory_bytes || self.heap.deepest() > DEPTH_MAX
    }

    /// About how much memory the run needs, in bytes.
    fn memory(&self) -> usize {
        self.heap.bytes()
            + self.cells.len() * size_of::<Cell>()
            + self.instances.len() * size_of::<Instance>()
            + self.delayed.len() * size_of::<Delayed>()
            + self.units.len() * size_of::<Unit>()
            + self.temps.len() * size_of::<Temp>()
            + self.waiters.len() * size_of::<Waiter>()
            + self.frames.len() * size_of::<Frame>()
            + self.output.len()
    }

    /// The error for a run that needs too much memory or nests its values too deeply, found after
    /// the step of `origin`.
    pub(super) fn beyond_limits(&self, origin: u32, frame: u32) -> Box<CompileError> {
        if self.heap.deepest() > DEPTH_MAX {
            let text = format!("a value is nested more than {DEPTH_MAX} levels deep");
            return self.blame(CompileError::new("NestingException", text), origin);
        }
        let mebibytes = self.limits.memory_bytes >> 20;
        let made_by = match self.chain(self.frame_instance(frame)) {
            chain if chain.is_empty() => String::new(),
            chain => format!(", in {chain}"),
        };
        let text = format!("the model is too large: it needs more than {mebibytes} MiB{made_by}");
        let help = format!(
            "a model that is meant to be so large needs a higher limit: --max-memory MIB, now {mebibytes}"
        );
        self.blame(CompileError::new("EndlessModel", text), origin).help(help)
    }

    /// The error for one instance too many.
    pub(super) fn endless(
        &self,
        id: ExprId,
        creator: Option<InstanceId>,
        depth: u32,
    ) -> Box<CompileError> {
        let constructor = self.renderer().expr(id);
        let chain = match self.chain(creator) {
            chain if chain.is_empty() => constructor,
            chain => format!("{constructor} made by {chain}"),
        };
        let Limits { instances, creation_depth, .. } = self.limits;
        let (text, help) = if depth > creation_depth {
            (
                format!(
                    "the model does not end: implementations make instances {depth} deep: {chain}"
                ),
                format!(
                    "end the recursion with a condition (`implement … when …`); a model that is \
                     meant to be so deep needs a higher limit: --max-depth N, now {creation_depth}"
                ),
            )
        } else {
            (
                format!(
                    "the model is too large: more than {instances} instances, the last one {depth} \
                     implementations deep: {chain}"
                ),
                format!(
                    "a model that is meant to be so large needs a higher limit: --max-instances N, \
                     now {instances}"
                ),
            )
        };
        self.blame_expr(CompileError::new("EndlessModel", text), id).help(help)
    }

    /// An instance, who made it, and so on.
    fn chain(&self, from: Option<InstanceId>) -> String {
        let mut chain = Vec::new();
        let mut at = from;
        while let Some(instance) = at.filter(|_| chain.len() < CHAIN_SHOWN - 1) {
            chain.push(self.str(Value::Instance(instance)));
            let creator = self.instances[instance.index()].creator;
            at = (creator != NONE).then_some(InstanceId(creator));
        }
        chain.join(" made by ")
    }
}
