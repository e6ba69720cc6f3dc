//! Callbacks after the export: an external host, such as a test run, keeps querying the model until
//! it closes the connection.

use orrery_compiler::host::InstanceView;
use serde_json::Value as Json;

use orrery_host::framing::kind;

use super::CompileHost;
use super::callbacks::CallbackContext;

impl CompileHost {
    /// Sends the result of the compile to the host.
    ///
    /// # Errors
    /// Fails if the host is lost.
    pub fn report(&self, message: &Json) -> Result<(), String> {
        if !self.is_running() && self.lost.borrow().is_none() {
            // The model has not needed the host so far.
            self.connect()?;
        }
        self.send_json(message)
    }

    /// Answers callbacks until the connection ends. `None`: there is no model.
    pub fn serve(&self, view: Option<&dyn InstanceView>) {
        loop {
            let Ok(line) = self.receive() else { return };
            let Ok(word) = kind(&line) else { return };
            let mut callback_context = view.map_or(CallbackContext::Nothing, CallbackContext::End);
            if let Err(error) = self.answer(&word, &line, &mut callback_context) {
                tracing::debug!(error, "the conversation with the host ended");
                return;
            }
        }
    }
}
