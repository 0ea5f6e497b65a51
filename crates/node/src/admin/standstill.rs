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
use skein_replica::replica::{Command, STANDS, Stood};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest time of a server to reach the entry; the reactor gives up earlier.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest time to read its memory: shorter than the standstill.
const READS: Duration = STANDS.saturating_sub(Duration::from_secs(2));

fn conflict(why: impl Display) -> Response {
    (StatusCode::CONFLICT, format!("{why}\n")).into_response()
}

fn failed(why: impl Display) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response()
}

pub(super) async fn hold(State(shared): State<Shared>) -> Result<String, Response> {
    match ask(&shared.mailbox, Command::Hold).await? {
        Ok(index) => Ok(format!("{index}\n")),
        Err(why) => Err(conflict(why)),
    }
}

pub(super) async fn go_on(State(shared): State<Shared>) -> Result<(), Response> {
    ask(&shared.mailbox, Command::GoOn).await.map(drop)
}

async fn stand_at(shared: &Shared, index: u64) -> Result<Stood, Response> {
    let stand = |reply| Command::StandAt(LogIndex(index), reply);
    ask_long(&shared.mailbox, PATIENCE, stand).await?.map_err(conflict)
}

/// The server goes on afterwards.
pub(super) async fn files(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<FilesStatus>, Response> {
    let Stood { files, times_at, memory } = stand_at(&shared, index).await?;
    let (layer, times) = (server::layer(&files), server::times(memory.arena, times_at));
    let read = move || layer.written(Some(&times.read()?));
    let read = tokio::task::spawn_blocking(read).await;
    let stood = ask(&shared.mailbox, Command::GoOn).await?;
    let written = read
        .map_err(failed)?
        .map_err(|error| failed(format!("the server's files cannot be read: {error}")))?;
    if !stood {
        return Err(conflict("reading the files took longer than a server is held"));
    }
    Ok(Json(FilesStatus { index, written }))
}

/// The server stands for a while longer: more requests may follow.
pub(super) async fn memory(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> Result<Json<MemoryStatus>, Response> {
    let begun = Instant::now();
    let memory = server::memory(stand_at(&shared, index).await?.memory);
    let read = tokio::task::spawn_blocking(move || memory.survey(begun + READS)).await;
    let stood = ask(&shared.mailbox, Command::StandOn).await?;
    let survey = read.map_err(failed)?.map_err(unread)?;
    stood.map_err(conflict)?;
    Ok(Json(MemoryStatus { index, survey }))
}

pub(super) async fn look(
    State(shared): State<Shared>,
    Json(question): Json<Question>,
) -> Result<Json<Vec<Page>>, Response> {
    let stood = ask(&shared.mailbox, Command::StandOn).await?.map_err(conflict)?;
    let memory = server::memory(stood.memory);
    let read = tokio::task::spawn_blocking(move || memory.look(&question)).await;
    let stood = ask(&shared.mailbox, Command::StandOn).await?;
    let pages = read.map_err(failed)?.map_err(unread)?;
    stood.map_err(conflict)?;
    Ok(Json(pages))
}

fn unread(error: impl Display) -> Response {
    conflict(format!("the server's memory cannot be read: {error}"))
}
