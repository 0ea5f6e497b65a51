//! Requests to a server that stands still: its files, its memory. The reactor does not wait until they are read; its server does.

use super::{Shared, ask, ask_long};
use crate::memory::{Page, Question};
use crate::server;
use crate::status::{FilesStatus, MemoryStatus};
use axum::Json;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use skein_model::LogIndex;
use skein_replica::replica::{Command, STANDS, STANDS_ON, Stood};
use skein_replica::server::Files;
use skein_sandbox::Written;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The longest time of a server to reach the entry; the reactor gives up earlier.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest time to read its memory: shorter than the standstill.
pub(super) const READS: Duration = STANDS.saturating_sub(Duration::from_secs(2));

pub(super) fn conflict(why: impl Display) -> Response {
    (StatusCode::CONFLICT, format!("{why}\n")).into_response()
}

pub(super) fn failed(why: impl Display) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response()
}

pub(super) async fn hold(State(shared): State<Shared>) -> Result<String, Response> {
    match ask(&shared.mailbox, Command::Hold).await? {
        Ok(index) => Ok(format!("{index}\n")),
        Err(why) => Err(conflict(why)),
    }
}

pub(super) async fn go_on(State(shared): State<Shared>) -> Result<(), Response> {
    shared.surveyed.forget();
    ask(&shared.mailbox, Command::GoOn).await.map(drop)
}

pub(super) async fn stand_at(shared: &Shared, index: u64) -> Result<Stood, Response> {
    let stand = |reply| Command::StandAt(LogIndex(index), reply);
    ask_long(&shared.mailbox, PATIENCE, stand).await?.map_err(conflict)
}

/// A server that stands goes on standing for so much longer.
pub(super) async fn stand_on(shared: &Shared, longer: Duration) -> Result<Stood, Response> {
    ask(&shared.mailbox, |reply| Command::StandOn(longer, false, reply)).await?.map_err(conflict)
}

/// It does at least for so long: it may be read by another request meanwhile.
async fn stand_at_least(shared: &Shared, longer: Duration) -> Result<Stood, Response> {
    ask(&shared.mailbox, |reply| Command::StandOn(longer, true, reply)).await?.map_err(conflict)
}

/// The server goes on afterwards.
pub(super) async fn files(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<FilesStatus>, Response> {
    let Stood { files, times_at, memory, .. } = stand_at(&shared, index).await?;
    let read = move || written(&files, memory.arena, times_at);
    let read = tokio::task::spawn_blocking(read).await;
    let stood = ask(&shared.mailbox, Command::GoOn).await?;
    let written = read.map_err(failed)?.map_err(failed)?;
    if !stood {
        return Err(conflict("reading the files took longer than a server is held"));
    }
    Ok(Json(FilesStatus { index, written }))
}

fn written(files: &Files, arena: OwnedFd, times_at: u64) -> Result<Written, String> {
    let times = server::times(arena, times_at);
    let written = times.read().and_then(|times| server::layer(files).written(Some(&times)));
    written.map_err(|error| format!("the server's files cannot be read: {error}"))
}

/// The server stands for a while longer: more requests may follow.
pub(super) async fn memory(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<MemoryStatus>, Response> {
    let begun = Instant::now();
    let stood = stand_at(&shared, index).await?;
    survey(&shared, index, stood, begun + READS).await.map(Json)
}

/// What was repaired is looked at once more.
pub(super) async fn again(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<MemoryStatus>, Response> {
    let begun = Instant::now();
    let stood = stand_on(&shared, STANDS).await?;
    survey(&shared, index, stood, begun + READS).await.map(Json)
}

/// Reads all of it.
pub(super) async fn survey(
    shared: &Shared,
    index: u64,
    stood: Stood,
    deadline: Instant,
) -> Result<MemoryStatus, Response> {
    let Stood { files, times_at, memory, digest } = stood;
    let arena = memory.arena.try_clone().map_err(failed)?;
    let memory = server::memory(memory);
    let read = move || {
        let survey = memory.survey(deadline).map_err(unread)?;
        let outfit = server::outfit(&files);
        let state = outfit.given().map(|given| memory.state(given, deadline)).transpose();
        let state = state.map_err(unread)?.flatten();
        Ok((survey, state, written(&files, arena, times_at)?))
    };
    let read = tokio::task::spawn_blocking(read).await;
    let stood = stand_on(shared, STANDS_ON).await;
    let (survey, state, written) = read.map_err(failed)?.map_err(|why: String| conflict(why))?;
    stood?;
    let digest = digest.map(|digest| format!("{digest:016x}")).unwrap_or_default();
    Ok(MemoryStatus { index, digest, survey, written, state })
}

pub(super) async fn look(
    State(shared): State<Shared>,
    Json(question): Json<Question>,
) -> Result<Json<Vec<Page>>, Response> {
    let memory = server::memory(stand_at_least(&shared, STANDS_ON).await?.memory);
    let read = tokio::task::spawn_blocking(move || memory.look(&question)).await;
    let stood = stand_at_least(&shared, STANDS_ON).await;
    let pages = read.map_err(failed)?.map_err(unread).map_err(conflict)?;
    stood.map(|_| Json(pages))
}

fn unread(error: impl Display) -> String {
    format!("the server's memory cannot be read: {error}")
}
