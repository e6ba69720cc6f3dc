//! After the export: a host that is somebody else's process, such as a run of tests, goes on asking about the model
//! until it closes the connection.

use orrery_compiler::host::View;
use serde_json::Value as Json;

use crate::wire::kind;

use super::CompileHost;
use super::answers::Asked;

impl CompileHost {
    /// Tells the host what the compile came to.
    ///
    /// # Errors
    /// If it is gone.
    pub fn report(&self, message: &Json) -> Result<(), String> {
        if !self.is_running() && self.lost.borrow().is_none() {
            // Nothing of the model needed it so far.
            self.connect()?;
        }
        self.send_json(message)
    }

    /// Answers questions until there are no more. `None`: there is no model to ask about.
    pub fn serve(&self, view: Option<&dyn View>) {
        loop {
            let Ok(line) = self.receive() else { return };
            let Ok(word) = kind(&line) else { return };
            let mut asked = view.map_or(Asked::Nothing, Asked::End);
            if let Err(error) = self.answer(&word, &line, &mut asked) {
                tracing::debug!(error, "the conversation with the host ended");
                return;
            }
        }
    }
}
