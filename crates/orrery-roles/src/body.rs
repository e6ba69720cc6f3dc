//! Request bodies with limits of size, time and total memory.
//!
//! `Budget` is shared by all requests of one kind; each request has a `Charge`, which returns its
//! bytes when it is dropped. Handlers read a `LimitedBody`, which fails with a `BodyError` at a
//! limit.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use orrery_base::error_chain::sources;
use orrery_base::lock::IgnorePoison;
use tokio::time::Sleep;

/// Maximum size of a request body.
pub const BODY_MAX: usize = 100 * 1024 * 1024;

/// Limits for anonymous clients.
pub const ANONYMOUS_BOUNDS: Bounds = Bounds { size: 64 * 1024, within: Duration::from_secs(10) };

/// Body timeout for authenticated clients. Shorter than that of the request, so that the response
/// can state that nothing was done.
pub const AUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(50);

/// Size and time limit of a body.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub size: usize,
    pub within: Duration,
}

/// Exceeded limit of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive within {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("bodies of other requests use all the memory reserved for them")]
    NoRoom,
}

impl BodyError {
    /// Finds the exceeded limit behind a wrapped error.
    pub fn find(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        sources(error).find_map(|error| error.downcast_ref::<BodyError>().copied())
    }
}

/// Memory budgets of all request bodies.
#[derive(Debug)]
pub struct Budgets {
    anonymous: Arc<Budget>,
    authenticated: Arc<Budget>,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets {
            anonymous: Arc::new(Budget::new(16 << 20, 4 << 20)),
            authenticated: Arc::new(Budget::new(1 << 30, 256 << 20)),
        }
    }
}

impl Budgets {
    /// Returns the charge of an anonymous client, by its network.
    pub fn for_network(&self, network: String) -> Arc<Charge> {
        Budget::charge(&self.anonymous, network)
    }

    /// Returns the charge of an account, a token or an agent.
    pub fn for_account(&self, owner: String) -> Arc<Charge> {
        Budget::charge(&self.authenticated, owner)
    }
}

/// Limits of memory in bytes: in total, and per owner.
#[derive(Debug)]
struct Budget {
    total_max: usize,
    each_max: usize,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    total: usize,
    by_owner: HashMap<String, usize>,
}

impl Budget {
    fn new(total_max: usize, each_max: usize) -> Self {
        Budget { total_max, each_max, held: Mutex::default() }
    }

    fn charge(budget: &Arc<Self>, owner: String) -> Arc<Charge> {
        Arc::new(Charge { budget: Arc::clone(budget), owner, taken: Mutex::new(0) })
    }

    fn take(&self, owner: &str, bytes: usize) -> bool {
        let mut held = self.held.lock().ignore_poison();
        let own = held.by_owner.get(owner).copied().unwrap_or(0);
        if held.total + bytes > self.total_max || own + bytes > self.each_max {
            return false;
        }
        held.total += bytes;
        *held.by_owner.entry(owner.to_owned()).or_default() += bytes;
        true
    }

    fn release(&self, owner: &str, bytes: usize) {
        let mut held = self.held.lock().ignore_poison();
        held.total = held.total.saturating_sub(bytes);
        let own = held.by_owner.get(owner).copied().unwrap_or(0).saturating_sub(bytes);
        if own == 0 {
            held.by_owner.remove(owner);
        } else if let Some(entry) = held.by_owner.get_mut(owner) {
            *entry = own;
        }
    }
}

/// Bytes of a budget that one request holds. Keep it until the response.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    owner: String,
    taken: Mutex<usize>,
}

impl Charge {
    fn take(&self, bytes: usize) -> bool {
        let took = self.budget.take(&self.owner, bytes);
        if took {
            *self.taken.lock().ignore_poison() += bytes;
        }
        took
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let taken = *self.taken.get_mut().ignore_poison();
        if taken > 0 {
            self.budget.release(&self.owner, taken);
        }
    }
}

/// A body that fails at one of its limits.
pub struct LimitedBody {
    inner: Body,
    charge: Arc<Charge>,
    bounds: Bounds,
    left: usize,
    deadline: Pin<Box<Sleep>>,
}

impl LimitedBody {
    pub fn wrap(inner: Body, charge: Arc<Charge>, bounds: Bounds) -> Body {
        let deadline = Box::pin(tokio::time::sleep(bounds.within));
        Body::new(LimitedBody { inner, charge, bounds, left: bounds.size, deadline })
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        // A body with a too large announced size is not read.
        let too_large = BodyError::TooLarge(self.bounds.size);
        if self.inner.size_hint().lower() > self.left as u64 {
            return Poll::Ready(Some(Err(too_large.into())));
        }
        // The deadline also ends a body that keeps sending.
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(BodyError::TooSlow(self.bounds.within).into())));
        }
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            let Some(left) = self.left.checked_sub(data.len()) else {
                return Poll::Ready(Some(Err(too_large.into())));
            };
            self.left = left;
            if !self.charge.take(data.len()) {
                return Poll::Ready(Some(Err(BodyError::NoRoom.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work)
    }

    async fn read(body: Body, charge: &Arc<Charge>, bounds: Bounds) -> Result<usize, BodyError> {
        let read = LimitedBody::wrap(body, Arc::clone(charge), bounds).collect().await;
        read.map(|read| read.to_bytes().len()).map_err(|error| BodyError::find(&error).unwrap())
    }

    /// An endless body with a chunk every few milliseconds.
    fn dripping(chunk: usize) -> Body {
        Body::from_stream(futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from(vec![0; chunk])), ()))
        }))
    }

    #[test]
    fn a_body_ends_at_its_size_and_at_its_deadline() {
        run(async {
            let budgets = Budgets::default();
            let charge = budgets.for_network("192.0.2.1".to_owned());
            let bounds = Bounds { size: 100, within: Duration::from_millis(200) };
            assert_eq!(read(Body::from(vec![0; 100]), &charge, bounds).await, Ok(100));
            let large = read(Body::from(vec![0; 101]), &charge, bounds).await;
            assert_eq!(large, Err(BodyError::TooLarge(100)));
            assert_eq!(read(dripping(60), &charge, bounds).await, Err(BodyError::TooLarge(100)));
            let slow = read(dripping(0), &charge, bounds).await;
            assert_eq!(slow, Err(BodyError::TooSlow(bounds.within)));
        });
    }

    #[test]
    fn budgets_are_per_owner_and_released() {
        run(async {
            let budget = Arc::new(Budget::new(1000, 400));
            let bounds = Bounds { size: 1000, within: Duration::from_secs(10) };
            let charges: Vec<_> =
                ["a", "b"].map(|owner| Budget::charge(&budget, owner.to_owned())).into();
            assert_eq!(read(Body::from(vec![0; 300]), &charges[0], bounds).await, Ok(300));
            let again = Budget::charge(&budget, "a".to_owned());
            let full = read(Body::from(vec![0; 300]), &again, bounds).await;
            assert_eq!(full, Err(BodyError::NoRoom));
            assert_eq!(read(Body::from(vec![0; 400]), &charges[1], bounds).await, Ok(400));
            let third = Budget::charge(&budget, "c".to_owned());
            let full = read(Body::from(vec![0; 350]), &third, bounds).await;
            assert_eq!(full, Err(BodyError::NoRoom), "all of it counts together");
            drop((charges, again, third));
            let held = budget.held.lock().unwrap();
            assert_eq!((held.total, held.by_owner.len()), (0, 0));
        });
    }
}
