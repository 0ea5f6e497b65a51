//! Requests about images. Those that read files read them beside this thread.

use super::{Shared, ask, ask_long};
use crate::images::{Found, Store};
use crate::status::{ImageStatus, ImagesListed};
use axum::Json;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use skein_image::file::ImageError;
use skein_model::LogIndex;
use skein_replica::replica::{Checkpointed, Command};
use std::time::Duration;

/// The longest time to take an image: a disk may have to write gigabytes.
const TAKES: Duration = Duration::from_secs(600);

/// Takes one now.
pub(super) async fn take(State(shared): State<Shared>) -> Result<Json<Checkpointed>, Response> {
    ask_long(&shared.mailbox, TAKES, Command::Checkpoint).await?.map(Json).map_err(conflict)
}

/// What there is.
pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<ImagesListed>, Response> {
    let dir = shared.images.dir().to_owned();
    let found = beside(shared.images, |store| store.list()).await?.map_err(conflict)?;
    let images = found.into_iter().map(|(index, found)| status(index, found)).collect();
    Ok(Json(ImagesListed { dir, images }))
}

fn status(index: LogIndex, found: Result<Found, ImageError>) -> ImageStatus {
    let mut status = ImageStatus { index: index.0, ..ImageStatus::default() };
    match found {
        Err(error) => status.problem = Some(error.to_string()),
        Ok(found) => {
            let head = found.head;
            status.taken_ms = head.taken_ms;
            status.bytes = found.bytes;
            status.total_bytes = found.total_bytes;
            status.confirmed = found.confirmed;
            status.memory_bytes = head.memory_bytes;
            status.files_bytes = head.layer_bytes;
            status.processes = head.processes;
        }
    }
    status
}

/// Reads one from its beginning to its end; false: it is not here any more, because newer ones are.
pub(super) async fn verify(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<bool>, Response> {
    let index = LogIndex(index);
    let read = move |store: Store| match store.image(index) {
        Ok(_) => Ok(true),
        Err(_) if store.is_removed(index) => Ok(false),
        Err(error) => Err(error),
    };
    beside(shared.images, read).await?.map(Json).map_err(conflict)
}

/// Removes one.
pub(super) async fn remove(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<(), Response> {
    let remove = |reply| Command::RemoveImage(LogIndex(index), reply);
    ask(&shared.mailbox, remove).await?.map_err(conflict)
}

async fn beside<T: Send + 'static>(
    store: Store,
    work: impl FnOnce(Store) -> T + Send + 'static,
) -> Result<T, Response> {
    tokio::task::spawn_blocking(move || work(store))
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response())
}

fn conflict(why: impl std::fmt::Display) -> Response {
    (StatusCode::CONFLICT, format!("{why}\n")).into_response()
}
