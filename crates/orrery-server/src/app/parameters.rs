//! Parameters and facts.

use std::time::Duration;

/// Validity of a fact that expires.
pub(crate) const FACT_EXPIRY: Duration = Duration::from_secs(3600);
/// Age at which a fact is refreshed before it expires.
pub(crate) const FACT_RENEWAL: Duration = Duration::from_secs(FACT_EXPIRY.as_secs() / 3);
/// Minimum interval between fact refreshes of a resource.
pub(crate) const FACTS_PAUSE: Duration = Duration::from_secs(60);
