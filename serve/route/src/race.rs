//! The first of two things to happen.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// Waits for `a`, unless `b` ends first. Where both have ended, `a` counts.
pub(crate) async fn first<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> Result<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|context| match a.as_mut().poll(context) {
        Poll::Ready(a) => Poll::Ready(Ok(a)),
        Poll::Pending => b.as_mut().poll(context).map(Err),
    })
    .await
}
