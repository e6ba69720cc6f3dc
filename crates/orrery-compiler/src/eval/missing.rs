//! Errors about variables that do not exist, with the name that may have been meant.

use orrery_syntax::Symbol;

use crate::error::CompileError;
use crate::ir::ExprId;
use crate::similar_names;

use super::{FILE_FRAME, INSTANCE_FRAME, Machine};

impl Machine<'_> {
    /// The error for a variable that `id` reads in a frame.
    pub(super) fn variable_not_found(
        &self,
        name: Symbol,
        id: ExprId,
        frame: u32,
    ) -> Box<CompileError> {
        let full = self.text(name);
        let short = full.rsplit("::").next().unwrap_or(full);
        let mut error =
            CompileError::new("NotFoundException", format!("variable {short} not found"));
        let loc = self.program.expr(id).loc;
        error.focus = Some(loc);
        // In another namespace, names are seldom misspelt: they are not there at all.
        if full.contains("::") {
            return error;
        }
        let mut visible: Vec<Symbol> = Vec::new();
        let mut at = frame;
        while at != FILE_FRAME && at & INSTANCE_FRAME == 0 {
            let frame = &self.frames[at as usize];
            visible
                .extend(self.program.frame_names.get(frame.names as usize).into_iter().flatten());
            at = frame.parent;
        }
        if let Some(instance) = self.frame_instance(frame) {
            let entity = self.program.entity(self.instances[instance.index()].entity);
            visible.extend(entity.slots.iter().map(|&slot| self.program.attribute(slot).name));
        }
        let file = self.program.namespaces.iter().find(|namespace| namespace.file == loc.file);
        visible.extend(file.into_iter().flat_map(|namespace| namespace.variables.keys()));
        let visible = visible.into_iter().map(|symbol| self.text(symbol));
        match similar_names::closest(short, visible) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }
}
