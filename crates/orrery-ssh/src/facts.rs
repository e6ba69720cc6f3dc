//! Facts of a machine, collected over its connection by one script.

use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, TransportError, TransportErrorKind};
use orrery_model::{MACHINE_FACTS_SCRIPT, MachineFacts};

use crate::transport::SshTransport;

const TIME: Duration = Duration::from_secs(60);
const OUTPUT_BYTES: usize = 64 * 1024;

impl SshTransport {
    /// Collects the facts of the machine.
    ///
    /// # Errors
    /// If the machine is not reached, or does not answer.
    pub fn facts(&self, stop: &CancelToken) -> Result<MachineFacts, TransportError> {
        let limits = ExecLimits { timeout: Some(TIME), output_bytes: OUTPUT_BYTES };
        let output = self.exec_as_user(MACHINE_FACTS_SCRIPT, &limits, stop)?;
        if !output.success() {
            let reason = format!("cannot read its facts: {}", output.error_excerpt());
            let destination = orrery_handlers::target::Transport::destination(self);
            return Err(TransportError::new(TransportErrorKind::Refused, destination, reason));
        }
        Ok(MachineFacts::parse(&output.stdout_text()))
    }
}
