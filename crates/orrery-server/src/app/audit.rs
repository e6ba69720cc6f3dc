//! The audit log: verification of its hash chain.

use orrery_base::hex::to_hex;
use orrery_store::AuditVerification;

use crate::error::ServerError;
use crate::services::Services;

/// Entries verified at a time.
const STEP: usize = 10_000;

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Number of entries that were verified.
    pub(crate) entries: i64,
    /// Hash of the last verified entry.
    pub(crate) head: [u8; 32],
    /// The first entry with a wrong hash, and the reason.
    pub(crate) broken: Option<(i64, &'static str)>,
}

/// Verifies the whole hash chain, and that it passes a head that was recorded before: the number of
/// an entry and its hash in hexadecimal.
pub(crate) async fn verify(
    services: &Services,
    mut known: Option<(i64, String)>,
) -> Result<Verdict, ServerError> {
    let (mut good, mut head, mut begins) = (0, [0; 32], None);
    loop {
        let from = Some((good, head));
        let step = known.as_ref().map_or(STEP as i64, |(id, _)| (id - good).clamp(1, STEP as i64));
        let step = usize::try_from(step).unwrap_or(STEP);
        let walked = services.with_store(move |store| store.audit().verify(from, step)).await?;
        let broken = match walked {
            AuditVerification::Broken { id, reason } => Some((id, reason)),
            AuditVerification::Good { id, hash } => {
                let ended = id == good;
                if good == 0 && id > 0 {
                    let oldest = services.with_store(|store| store.audit().oldest_id());
                    begins = Some(oldest.await?);
                }
                (good, head) = (id, hash);
                // The chain must pass the recorded head.
                let differs = known.take_if(|(at, _)| *at <= good || ended);
                match differs {
                    Some((at, _)) if at < begins.unwrap_or(0) => {
                        Some((at, "the entry was deleted by retention; record a newer head"))
                    }
                    Some((at, hash))
                        if at != good || !hash.eq_ignore_ascii_case(&to_hex(&head)) =>
                    {
                        Some((at, "the entry differs from the recorded one"))
                    }
                    _ if ended => None,
                    _ => continue,
                }
            }
        };
        return Ok(Verdict { entries: good, head, broken });
    }
}
