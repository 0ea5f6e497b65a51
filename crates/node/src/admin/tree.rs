//! Requests for the memory of a server that stands still, from the root of the tree ([`crate::memory`]) down to the pages of groups that differ.
//!
//! The root's request reads all of it; what was read is kept for those behind it until the server goes on, or has stood as long as a server may.

use super::Shared;
use super::standstill::{READS, conflict, stand_at, stand_on, survey};
use crate::memory::{PageAt, ProcessState, Survey};
use crate::status::{MemoryRoot, MemoryStatus};
use axum::Json;
use axum::extract::{Path as Segment, State};
use axum::response::Response;
use skein_replica::replica::{STANDS, STANDS_ON, Stood};
use skein_sandbox::Written;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A requester that has vanished leaves it for so long at most.
const KEPT: Duration = STANDS.saturating_mul(2);

/// What the last root is of.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveyed(Arc<Mutex<Option<Arc<MemoryStatus>>>>);

impl Surveyed {
    /// The server goes on, or is changed.
    pub(super) fn forget(&self) {
        self.replace(None);
    }

    fn replace(&self, status: Option<Arc<MemoryStatus>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    fn keep(&self, status: &Arc<MemoryStatus>) {
        self.replace(Some(status.clone()));
        let (kept, mine) = (self.0.clone(), Arc::downgrade(status));
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            drop(kept.take_if(|status| Arc::as_ptr(status) == mine.as_ptr()));
        });
    }

    fn at(&self, index: u64) -> Option<Arc<MemoryStatus>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone().filter(|status| status.index == index)
    }
}

pub(super) async fn root(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<MemoryRoot>, Response> {
    let begun = Instant::now();
    let stood = stand_at(&shared, index).await?;
    read(&shared, index, stood, begun + READS).await
}

/// What was repaired is looked at once more.
pub(super) async fn again(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<MemoryRoot>, Response> {
    let begun = Instant::now();
    let stood = stand_on(&shared, STANDS).await?;
    read(&shared, index, stood, begun + READS).await
}

async fn read(
    shared: &Shared,
    index: u64,
    stood: Stood,
    deadline: Instant,
) -> Result<Json<MemoryRoot>, Response> {
    shared.surveyed.forget();
    let status = Arc::new(survey(shared, index, stood, deadline).await?);
    shared.surveyed.keep(&status);
    Ok(Json(MemoryRoot::of(&status)))
}

/// What was read, of a server that has stood since.
async fn surveyed(shared: &Shared, index: u64) -> Result<Arc<MemoryStatus>, Response> {
    stand_on(shared, STANDS_ON).await?;
    let gone = || conflict(format!("what was read at entry {index} is not kept any more"));
    shared.surveyed.at(index).ok_or_else(gone)
}

pub(super) async fn groups(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<Survey>, Response> {
    Ok(Json(surveyed(&shared, index).await?.survey.grouped()))
}

pub(super) async fn pages(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
    Json(groups): Json<Vec<PageAt>>,
) -> Result<Json<Survey>, Response> {
    Ok(Json(surveyed(&shared, index).await?.survey.opened(&groups)))
}

pub(super) async fn files(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<Written>, Response> {
    Ok(Json(surveyed(&shared, index).await?.written.clone()))
}

pub(super) async fn state(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<Vec<ProcessState>>, Response> {
    Ok(Json(surveyed(&shared, index).await?.state.clone().unwrap_or_default()))
}
