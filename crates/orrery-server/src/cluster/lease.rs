//! Leases: the rules of a template about the lifetime of its clusters.

use orrery_cluster::document::LeaseDuration;
use orrery_model::Timestamp;

/// Microseconds per millisecond.
const MILLISECOND: i64 = 1_000;

/// Times of a cluster that a lease depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) created: Timestamp,
    /// `None` for a lease without end.
    pub(crate) expires: Option<Timestamp>,
}

fn after(time: Timestamp, milliseconds: u64) -> Timestamp {
    let micros = i64::try_from(milliseconds).unwrap_or(i64::MAX).saturating_mul(MILLISECOND);
    Timestamp(time.0.saturating_add(micros))
}

/// Returns the end of the lease of a new cluster; `None` for no end. The requested duration is in
/// milliseconds, 0 for no end.
///
/// # Errors
/// The reason, if the template does not allow the duration.
pub(crate) fn initial(
    rules: &LeaseDuration,
    requested: Option<u64>,
    now: Timestamp,
) -> Result<Option<Timestamp>, String> {
    let duration = requested.unwrap_or(rules.initial.0);
    if !rules.initial.is_zero() && (duration == 0 || duration > rules.initial.0) {
        return Err(format!(
            "must be 1 to {} seconds: the template allows no longer lease",
            rules.initial.0 / 1_000
        ));
    }
    Ok((duration > 0).then(|| after(now, duration)))
}

/// Checks a new end of a lease; `None` for no end.
///
/// # Errors
/// The reason, if the template does not allow it.
pub(crate) fn check_change(
    rules: &LeaseDuration,
    lease: Lease,
    expires: Option<Timestamp>,
) -> Result<(), String> {
    if expires.is_some_and(|expires| expires < lease.created) {
        return Err("must not be before the creation of the cluster".to_owned());
    }
    if rules.max.is_zero() {
        return Ok(());
    }
    let latest = after(lease.created, rules.max.0);
    let Some(expires) = expires else {
        return Err(format!("must not be after {latest}: the template allows no longer lease"));
    };
    if expires > latest {
        return Err(format!("must not be after {latest}: the template allows no longer lease"));
    }
    let step = lease.expires.map(|current| after(current, rules.step.0));
    if let Some(step) = step.filter(|_| !rules.step.is_zero())
        && expires > step
    {
        return Err(format!("must not be after {step}: the template limits each extension"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use orrery_cluster::document::LeaseTime;

    use super::*;

    fn rules(initial: u64, max: u64, step: u64) -> LeaseDuration {
        let [initial, max, step] = [initial, max, step].map(LeaseTime);
        LeaseDuration { initial, max, step }
    }

    const fn at(milliseconds: i64) -> Timestamp {
        Timestamp(milliseconds * MILLISECOND)
    }

    #[test]
    fn new_leases_are_at_most_as_long_as_the_template_says() {
        let of = |rules, requested| initial(&rules, requested, at(10));
        assert_eq!(of(rules(1_000, 0, 0), None), Ok(Some(at(1_010))));
        assert_eq!(of(rules(1_000, 0, 0), Some(1_000)), Ok(Some(at(1_010))));
        assert_eq!(of(rules(1_000, 0, 0), Some(5)), Ok(Some(at(15))));
        assert!(of(rules(1_000, 0, 0), Some(1_001)).is_err());
        assert!(of(rules(1_000, 0, 0), Some(0)).is_err(), "no end");
        assert_eq!(of(rules(0, 0, 0), None), Ok(None));
        assert_eq!(of(rules(0, 0, 0), Some(7)), Ok(Some(at(17))), "forever accepts anything");
        assert_eq!(of(rules(0, 0, 0), Some(u64::MAX)), Ok(Some(Timestamp(i64::MAX))));
    }

    /// The facts of the original system: created at 10000, expires at 20000.
    #[test]
    fn leases_change_within_the_step_and_the_maximum() {
        let lease = Lease { created: at(10_000), expires: Some(at(20_000)) };
        let change = |time: i64| check_change(&rules(1_000, 12_000, 1_000), lease, Some(at(time)));
        for (time, is_allowed) in [
            (22_000, false),
            (9_000, false),
            (19_000, true),
            (20_000, true),
            (21_000, true),
            (23_000, false),
        ] {
            assert_eq!(change(time).is_ok(), is_allowed, "{time}");
        }
        let longer = Lease { expires: Some(at(21_000)), ..lease };
        let change = |time: i64| check_change(&rules(1_000, 12_000, 1_000), longer, Some(at(time)));
        assert!(change(22_000).is_ok());
        assert!(change(23_000).is_err());
        assert!(check_change(&rules(0, 12_000, 0), lease, Some(at(22_000))).is_ok(), "any step");
        assert!(check_change(&rules(0, 12_000, 0), lease, None).is_err());
        assert!(check_change(&rules(0, 0, 1), lease, Some(at(99_000))).is_ok(), "no maximum");
        assert!(check_change(&rules(0, 0, 1), lease, None).is_ok());
        assert!(check_change(&rules(0, 0, 1), lease, Some(at(9_999))).is_err());
    }
}
