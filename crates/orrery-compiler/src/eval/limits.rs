//! Limits that turn an infinite model into an error. The error names the chain of instances that
//! created each other.

use crate::error::{CompileError, Result};
use crate::ir::ExprId;
use crate::project::CompileLimits;
use crate::value::{InstanceId, Value};

use super::{Cell, Delayed, Evaluator, Frame, Instance, NONE, Temp, Unit, Waiter};

/// Number of chain links in a message.
const CHAIN_SHOWN: usize = 5;

/// Maximum nesting depth of values. Functions that read them, such as `repr`, recurse as deeply.
const DEPTH_MAX: u32 = 100_000;

impl Evaluator<'_> {
    /// Returns true if the last step exceeded a limit. Runs after every step: totals are computed
    /// only now and then, but a single step can create a value of any size.
    pub(super) fn limits_exceeded(&mut self) -> bool {
        self.steps = self.steps.wrapping_add(1);
        let memory = if self.steps.is_multiple_of(64) { self.memory() } else { self.heap.bytes() };
        memory > self.limits.memory_bytes
            || self.heap.max_depth() > DEPTH_MAX
            || self.heap.is_too_large()
    }

    /// The error for a value that is too large to be read, if one exists.
    pub(super) fn check_size(&self) -> Result<()> {
        if !self.heap.is_too_large() {
            return Ok(());
        }
        let mebibytes = self.heap.text_max() >> 20;
        let text = format!(
            "a value is too large: its text would have more than {mebibytes} MiB, where each part \
             stands as often as it is used"
        );
        let help = format!(
            "a value that is meant to be so large needs a higher limit: --max-text MIB, now {mebibytes}"
        );
        Err(CompileError::new("EndlessModel", text).help(help))
    }

    /// Approximate memory use of the run in bytes.
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

    /// The error for exceeding the memory or nesting limit, detected after the step of `origin`.
    pub(super) fn memory_limit_error(&self, origin: u32, frame: u32) -> Box<CompileError> {
        if self.heap.max_depth() > DEPTH_MAX {
            let text = format!("a value is nested more than {DEPTH_MAX} levels deep");
            return self.blame(CompileError::new("NestingException", text), origin);
        }
        if let Err(error) = self.check_size() {
            return self.blame(error, origin);
        }
        let mebibytes = self.limits.memory_bytes >> 20;
        let made_by = match self.creation_chain(self.frame_instance(frame)) {
            chain if chain.is_empty() => String::new(),
            chain => format!(", in {chain}"),
        };
        let text = format!("the model is too large: it needs more than {mebibytes} MiB{made_by}");
        let help = format!(
            "a model that is meant to be so large needs a higher limit: --max-memory MIB, now {mebibytes}"
        );
        self.blame(CompileError::new("EndlessModel", text), origin).help(help)
    }

    /// The error for exceeding the instance limit.
    pub(super) fn instance_limit_error(
        &self,
        id: ExprId,
        creator: Option<InstanceId>,
        depth: u32,
    ) -> Box<CompileError> {
        let constructor = self.renderer().expr(id);
        let chain = match self.creation_chain(creator) {
            chain if chain.is_empty() => constructor,
            chain => format!("{constructor} made by {chain}"),
        };
        let CompileLimits { instances, creation_depth, .. } = self.limits;
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

    /// The chain of creators of an instance.
    fn creation_chain(&self, from: Option<InstanceId>) -> String {
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
