//! A run's group is left, however the run ends.

use std::sync::Arc;
use std::time::Duration;

use crate::adapter::MembershipHandle;

/// Leaves the group when the run is dropped half way.
pub(super) struct LeaveOnDrop(pub(super) Option<Arc<dyn MembershipHandle>>);

impl LeaveOnDrop {
    pub(super) async fn now(mut self) {
        if let Some(handle) = self.0.take()
            && let Err(error) = handle.leave(LEAVE_TIMEOUT).await
        {
            tracing::warn!(%error, "the redrive's group was not left in order");
        }
    }
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { handle.leave(LEAVE_TIMEOUT).await });
        }
    }
}

/// The broker drops a member that does not leave; there is no use in waiting long.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
