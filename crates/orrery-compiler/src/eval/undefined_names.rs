//! Errors about undefined variables, with a suggested name.

use orrery_syntax::ast::FileId;
use orrery_syntax::{Explanation, Symbol};

use crate::error::CompileError;
use crate::ir::ExprId;
use crate::similar_names;

use super::{Evaluator, FILE_FRAME, INSTANCE_FRAME};

impl Evaluator<'_> {
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
        if short.contains(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)) {
            // Only a placeholder in a string can have such a "name".
            let explanation = Explanation::new(format!(
                "`{short}` is an expression: strings take names of variables and attributes only"
            ))
            .at(loc, "")
            .help(format!(
                "assign it to a variable first, `value = {short}`, and write `{{value}}` in the string"
            ));
            return error.explained(explanation);
        }
        if matches!(short, "let" | "var" | "const" | "val") {
            let headline = format!("`{short}` is not needed to assign a variable");
            let explanation = Explanation::new(headline).at(loc, "").help("write `NAME = VALUE`");
            return error.explained(explanation);
        }
        let explanation = Explanation::new(format!("variable `{short}` not found")).at(loc, "");
        // In another namespace, an unknown name is rarely misspelled: it is usually absent.
        if full.contains("::") {
            return error.explained(explanation);
        }
        let visible = self.visible_names(frame, loc.file);
        let visible = visible.into_iter().map(|symbol| self.text(symbol));
        let error = error.explained(explanation);
        match similar_names::closest(short, visible) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    /// Names visible to code in a frame and file.
    pub(super) fn visible_names(&self, frame: u32, file: FileId) -> Vec<Symbol> {
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
        let file = self.program.namespaces.iter().find(|namespace| namespace.file == file);
        visible.extend(file.into_iter().flat_map(|namespace| namespace.variables.keys()));
        visible
    }
}
