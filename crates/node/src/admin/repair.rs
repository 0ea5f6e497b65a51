//! Requests that repair a server which stands still and differs from another replica's: its pages, its files; and what its replica is to know of that.

use super::standstill::{conflict, failed, stand_on};
use super::{Shared, ask};
use crate::memory::{self, PageContents};
use crate::server;
use crate::status::{FileAnswer, FileQuestion};
use axum::Json;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::Response;
use skein_model::LogIndex;
use skein_replica::replica::{Command, Inbox, STANDS_ON};
use skein_sandbox::{Extent, Extents};
use std::path::Path;

pub(super) async fn pages(
    State(shared): State<Shared>,
    Json(pages): Json<Vec<PageContents>>,
) -> Result<(), Response> {
    let memory = server::memory(stand_on(&shared, STANDS_ON).await?.memory);
    shared.surveyed.forget();
    let written = tokio::task::spawn_blocking(move || memory.repair(&pages)).await;
    let stood = stand_on(&shared, STANDS_ON).await;
    written.map_err(failed)?.map_err(conflict)?;
    stood.map(drop)
}

pub(super) async fn look_at_file(
    State(shared): State<Shared>,
    Json(question): Json<FileQuestion>,
) -> Result<Json<FileAnswer>, Response> {
    let layer = server::layer(&stand_on(&shared, STANDS_ON).await?.files);
    let look = move || {
        let FileQuestion { path, pieces } = question;
        let (mut extents, mut found) = (Extents::default(), Vec::new());
        if pieces.is_empty() {
            extents = layer.extents(Path::new(&path))?;
        } else {
            found = layer.read_extents(Path::new(&path), &pieces)?;
        }
        let pieces = found.into_iter().map(|piece| (piece.number, memory::hex(&piece.contents)));
        Ok(FileAnswer { path, extents, pieces: pieces.collect() })
    };
    let looked = tokio::task::spawn_blocking(look).await;
    let stood = stand_on(&shared, STANDS_ON).await;
    let answer = looked.map_err(failed)?;
    let unread = |error: std::io::Error| conflict(format!("the file cannot be read: {error}"));
    let answer = answer.map_err(unread)?;
    stood.map(|_| Json(answer))
}

pub(super) async fn file(
    State(shared): State<Shared>,
    Json(answer): Json<FileAnswer>,
) -> Result<(), Response> {
    let layer = server::layer(&stand_on(&shared, STANDS_ON).await?.files);
    let write = move || {
        let FileAnswer { path, extents, pieces } = answer;
        let extent = |(number, hex): &(u64, String)| Extent {
            number: *number,
            contents: memory::bytes(hex),
        };
        let pieces: Vec<_> = pieces.iter().map(extent).collect();
        layer.write_extents(Path::new(&path), extents.size, &pieces)
    };
    let written = tokio::task::spawn_blocking(write).await;
    shared.images.files_were_repaired();
    let stood = stand_on(&shared, STANDS_ON).await;
    let unwritten = |error| conflict(format!("the file is not repaired: {error}"));
    written.map_err(failed)?.map_err(unwritten)?;
    stood.map(drop)
}

/// Its replica gives up images that may have what differed.
pub(super) async fn done(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
    here: String,
) -> (StatusCode, &'static str) {
    let here = Some(here).filter(|here| !here.is_empty());
    tell(&shared, Command::Repaired { index: LogIndex(index), here })
}

pub(super) async fn equal(
    State(shared): State<Shared>,
    Segment(index): Segment<u64>,
) -> (StatusCode, &'static str) {
    tell(&shared, Command::FoundEqual(LogIndex(index)))
}

pub(super) async fn rebuild(State(shared): State<Shared>, why: String) -> Result<(), Response> {
    ask(&shared.mailbox, |reply| Command::Rebuild(why, reply)).await?.map_err(conflict)
}

fn tell(shared: &Shared, command: Command) -> (StatusCode, &'static str) {
    match shared.mailbox.tell(Inbox::Command(command)) {
        true => (StatusCode::OK, ""),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the node is ending\n"),
    }
}
