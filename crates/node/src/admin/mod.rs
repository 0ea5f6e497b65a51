//! The admin interface: HTTP over a unix socket, and metrics over a loopback port.
//!
//! ```text
//! GET  /status                  NodeStatus as JSON
//! GET  /metrics                 Prometheus text
//! POST /hold                    holds the server for a moment; answers the last entry that it has
//! GET  /files/ENTRY             FilesStatus as JSON: the files that the held server has written up to this entry; it goes on
//! GET  /memory/ENTRY            MemoryStatus as JSON: the held server's memory and files at this entry; it stands there
//! GET  /memory/ENTRY/again      the same once more, of a server that stands there
//! GET  /memory/ENTRY/root       MemoryRoot as JSON: the same in short, of the held server; it stands there
//! GET  /memory/ENTRY/root/again the same once more, of a server that stands there
//! GET  /memory/ENTRY/groups     memory::Survey as JSON, with groups in place of pages, behind the root
//! POST /memory/ENTRY/pages      memory::PageAt as JSON, a list of groups: memory::Survey as JSON, of their pages
//! GET  /memory/ENTRY/files      Written as JSON: its files, behind the root
//! GET  /memory/ENTRY/state      memory::ProcessState as JSON, a list: what the kernel has of its processes, behind the root
//! POST /memory/look             a memory::Question as JSON: pages of the server that stands; answers memory::Page as JSON, one for each
//! POST /memory/repair           memory::PageContents as JSON, a list: writes them into the server that stands
//! POST /files/look              a FileQuestion as JSON: a file of the server that stands; answers FileAnswer as JSON
//! POST /files/repair            a FileAnswer as JSON: writes these pieces of the file
//! POST /repaired/ENTRY          servers that stand at this entry were repaired; the body says what in this one, empty: nothing
//! POST /equal/ENTRY             all servers were found equal at this entry
//! POST /rebuild                 the server differs in what cannot be repaired, which the body says: it is built again
//! POST /go-on                   the held server goes on
//! POST /images                  takes an image of the server; answers Checkpointed as JSON
//! GET, POST /at/REPLICA/...     one of the above, but /metrics, of another member
//! GET  /images                  ImagesListed as JSON
//! GET  /images/ENTRY/verified   reads an image to its end
//! POST /images/ENTRY/remove     removes it
//! GET  /members                 MembersStatus as JSON
//! POST /members                 a members::Request as JSON: does its next step, here or on the leader; answers members::Answer as JSON
//! POST /upgrade                 an upgrade::Question as JSON: begins an upgrade of the server; answers upgrade::Begun as JSON
//! POST /stop                    ends the node in order
//! POST /transfer[/REPLICA]       hands leadership over
//! ```
//!
//! The unix socket's file mode (0600) is its access control; the metrics port answers `/metrics` and nothing else.
//!
//! Threads: one, with a small tokio runtime. It asks the reactor through its mailbox and gives up after a time, so a
//! reactor that hangs shows as 504. Crash: nothing of the node depends on it.

mod images;
mod members;
mod relay;
mod repair;
mod standstill;
mod tree;
pub mod upgrade;

use crate::base::Base;
use crate::base::runtime::Other;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::forward::{self, Forward};
use crate::images::Store;
use crate::reactor::Mailbox;
use crate::relay::Asked;
use crate::status::NodeStatus;
use crate::transport::Address;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use skein_replica::metrics::Metrics;
use skein_replica::replica::{Command, Inbox};
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest time of the reactor to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most clients that a follower forwards at a time.
const MAX_FORWARDED: usize = 10_000;

#[derive(Clone)]
struct Shared {
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    images: Store,
    about: About,
    surveyed: tree::Surveyed,
}

/// What the interface knows of its node's configuration.
#[derive(Clone, Debug)]
pub struct About {
    /// Itself.
    pub config: Arc<NodeConfig>,
    /// What the server has used of its host.
    pub base: Option<Arc<Base>>,
    /// Whether that has the runtime of another Skein.
    pub other_runtime: Arc<Other>,
}

/// What the interface's thread is given by the reactor's.
#[derive(Debug)]
pub struct Work {
    /// Clients to be forwarded to the leader.
    pub clients: mpsc::UnboundedReceiver<Forward>,
    /// Questions of other members.
    pub asked: mpsc::UnboundedReceiver<Asked>,
}

/// The admin interface; when dropped, it ends and its socket is removed.
#[derive(Debug)]
pub struct Admin {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Admin {
    /// Opens the sockets and begins to serve.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn start(
        path: &Path,
        metrics_at: Option<SocketAddr>,
        mailbox: Mailbox,
        metrics: Arc<Metrics>,
        (images, about): (Store, About),
        work: Work,
    ) -> Result<Self, NodeError> {
        let unix = unix_socket(path)?;
        let tcp = match metrics_at {
            None => None,
            Some(at) => Some(tcp_socket(at)?),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(NodeError::system("start the admin interface"))?;
        let (end, ended) = oneshot::channel();
        let surveyed = tree::Surveyed::default();
        let shared = Shared { mailbox, metrics, images, about, surveyed };
        let thread = std::thread::Builder::new()
            .name("skein-admin".into())
            .spawn(move || runtime.block_on(serve(unix, tcp, shared, work, ended)))
            .map_err(NodeError::system("start the admin interface"))?;
        Ok(Self { end: Some(end), thread: Some(thread), path: path.to_owned() })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // Dropping the sender ends the thread.
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Only the node's user may connect, from the first moment on: the socket is made under another name, then renamed.
fn unix_socket(path: &Path) -> Result<std::os::unix::net::UnixListener, NodeError> {
    let failed = |error| NodeError::Admin { at: path.display().to_string(), error };
    let fresh = path.with_extension("new");
    // Left by a crashed node; the data directory is ours.
    let _ = std::fs::remove_file(&fresh);
    let listener = std::os::unix::net::UnixListener::bind(&fresh).map_err(failed)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn tcp_socket(at: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let failed = |error| NodeError::Admin { at: at.to_string(), error };
    let listener = std::net::TcpListener::bind(at).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

async fn serve(
    unix: std::os::unix::net::UnixListener,
    tcp: Option<std::net::TcpListener>,
    shared: Shared,
    work: Work,
    ended: oneshot::Receiver<()>,
) {
    let metrics_only = Router::new().route("/metrics", get(metrics)).with_state(shared.clone());
    // What other members may ask, too.
    let of_members = Router::new()
        .route("/status", get(status))
        .route("/hold", post(standstill::hold))
        .route("/files/{entry}", get(standstill::files))
        .route("/memory/{entry}", get(standstill::memory))
        .route("/memory/{entry}/again", get(standstill::again))
        .route("/memory/{entry}/root", get(tree::root))
        .route("/memory/{entry}/root/again", get(tree::again))
        .route("/memory/{entry}/groups", get(tree::groups))
        .route("/memory/{entry}/pages", post(tree::pages))
        .route("/memory/{entry}/files", get(tree::files))
        .route("/memory/{entry}/state", get(tree::state))
        .route("/memory/look", post(standstill::look))
        .route("/memory/repair", post(repair::pages))
        .route("/files/look", post(repair::look_at_file))
        .route("/files/repair", post(repair::file))
        .route("/repaired/{entry}", post(repair::done))
        .route("/equal/{entry}", post(repair::equal))
        .route("/rebuild", post(repair::rebuild))
        .route("/go-on", post(standstill::go_on))
        .route("/images", post(images::take));
    let all = of_members
        .clone()
        .route("/metrics", get(metrics))
        .route("/at/{replica}/{*target}", any(relay::pass))
        .route("/images", get(images::list))
        .route("/images/{entry}/verified", get(images::verify))
        .route("/images/{entry}/remove", post(images::remove))
        .route("/members", get(members::list).post(members::change))
        .route("/upgrade", post(upgrade::begin))
        .route("/stop", post(stop))
        .route("/signal/{number}", post(signal))
        .route("/transfer", post(transfer))
        .route("/transfer/{to}", post(transfer_to))
        .with_state(shared.clone());
    let of_members = of_members.with_state(shared);
    let over_unix = async {
        match tokio::net::UnixListener::from_std(unix) {
            Ok(listener) => report(axum::serve(listener, all).into_future()).await,
            Err(error) => tracing::error!(event = "admin_failed", %error),
        }
    };
    let over_tcp = async {
        match tcp.map(tokio::net::TcpListener::from_std) {
            Some(Ok(listener)) => report(axum::serve(listener, metrics_only).into_future()).await,
            Some(Err(error)) => tracing::error!(event = "admin_failed", %error),
            None => {}
        }
    };
    let forwarding = forward::run(work.clients, MAX_FORWARDED);
    let answering = relay::answer_all(work.asked, of_members);
    tokio::select! {
        _ = async { tokio::join!(over_unix, over_tcp, forwarding, answering) } => {}
        _ = ended => {}
    }
}

async fn report(serving: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = serving.await {
        tracing::error!(event = "admin_failed", %error);
    }
}

/// Asks the reactor; `Err` is the response when it does not answer.
async fn ask<T>(
    mailbox: &Mailbox,
    question: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Response> {
    ask_long(mailbox, PATIENCE, question).await
}

async fn ask_long<T>(
    mailbox: &Mailbox,
    patience: Duration,
    question: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Response> {
    let (reply, answer) = oneshot::channel();
    if !mailbox.tell(Inbox::Command(question(reply))) {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the node is ending\n").into_response());
    }
    match tokio::time::timeout(patience, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, "the node is ending\n").into_response())
        }
        Err(_) => Err((StatusCode::GATEWAY_TIMEOUT, "the node does not answer\n").into_response()),
    }
}

/// The other members that a status names, or those of the configuration, and their addresses.
fn others(config: &NodeConfig, status: &NodeStatus) -> Vec<(u64, Address)> {
    let all: Vec<(u64, Address)> = if status.members.is_empty() {
        config.peers.iter().map(|peer| (peer.id, peer.address.clone())).collect()
    } else {
        let known = status.members.iter();
        known.filter_map(|member| Some((member.id, member.address.parse().ok()?))).collect()
    };
    all.into_iter().filter(|(id, _)| *id != config.id).collect()
}

async fn status(State(shared): State<Shared>) -> Result<Json<NodeStatus>, Response> {
    let mut status = ask(&shared.mailbox, Command::Status).await?;
    status.has_trees = true;
    let replica = &mut status.replica;
    replica.skein = env!("CARGO_PKG_VERSION").into();
    if let Some(base) = shared.about.base {
        replica.other_runtime = shared.about.other_runtime.than_in(&base, &replica.edition.about);
    }
    Ok(Json(status))
}

async fn metrics(State(shared): State<Shared>) -> Result<Response, Response> {
    // Also updates the gauges.
    ask(&shared.mailbox, Command::Status).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], shared.metrics.text()).into_response())
}

async fn stop(State(shared): State<Shared>) -> StatusCode {
    shared.mailbox.stop();
    StatusCode::ACCEPTED
}

async fn signal(
    State(shared): State<Shared>,
    Segment(number): Segment<u8>,
) -> Result<String, Response> {
    if !(1..=64).contains(&number) {
        return Err(
            (StatusCode::BAD_REQUEST, "signals are numbered from 1 to 64\n").into_response()
        );
    }
    match ask(&shared.mailbox, |reply| Command::Signal(number, reply)).await? {
        Ok(index) => Ok(format!("{index}\n")),
        Err(why) => Err((StatusCode::CONFLICT, format!("{why}\n")).into_response()),
    }
}

async fn transfer(State(shared): State<Shared>) -> Result<String, Response> {
    hand_over(&shared, None).await
}

async fn transfer_to(
    State(shared): State<Shared>,
    Segment(to): Segment<u64>,
) -> Result<String, Response> {
    hand_over(&shared, Some(to)).await
}

async fn hand_over(shared: &Shared, to: Option<u64>) -> Result<String, Response> {
    match ask(&shared.mailbox, |reply| Command::Transfer(to, reply)).await? {
        Ok(to) => Ok(format!("leadership goes to replica {to}\n")),
        Err(why) => Err((StatusCode::CONFLICT, format!("{why}\n")).into_response()),
    }
}
