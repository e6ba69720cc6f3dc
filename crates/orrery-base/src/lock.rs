//! Locks whose state stays usable after a panic of a holder.

use std::sync::PoisonError;

/// Access to a lock, poisoned or not.
///
/// A panic under a lock is a defect that is reported where it happens. The guarded state stays
/// readable: refusing it would turn the failure of one task into the failure of all others.
///
/// Implemented for the results of `Mutex`, `RwLock` and `Condvar`, so one method serves all:
/// `state.lock().ignore_poison()`, `table.read().ignore_poison()`, `cond.wait(guard).ignore_poison()`.
pub trait IgnorePoison {
    type Guard;

    fn ignore_poison(self) -> Self::Guard;
}

impl<G> IgnorePoison for Result<G, PoisonError<G>> {
    type Guard = G;

    fn ignore_poison(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, RwLock};

    #[test]
    fn state_is_readable_after_a_panic_of_a_holder() {
        let (mutex, rwlock) = (Mutex::new(1), RwLock::new(1));
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let (mut one, mut other) = (mutex.lock().unwrap(), rwlock.write().unwrap());
                (*one, *other) = (2, 3);
                panic!("a defect");
            });
            holder.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned() && rwlock.is_poisoned());
        assert_eq!((*mutex.lock().ignore_poison(), *rwlock.read().ignore_poison()), (2, 3));
        assert_eq!(mutex.into_inner().ignore_poison(), 2);
    }
}
