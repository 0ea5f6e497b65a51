//! Requests about the members of the cluster.

use super::{Shared, ask};
use crate::status::MembersStatus;
use crate::transport::Address;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use skein_log::ClusterId;
use skein_replica::members::{Answer, Request, Step, Wanted};
use skein_replica::replica::Command;

/// What this node's log says.
pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<MembersStatus>, Response> {
    let status = ask(&shared.mailbox, Command::Status).await?;
    Ok(Json(MembersStatus {
        cluster_id: ClusterId(shared.about.config.cluster()).to_string(),
        leader: status.leader,
        members: status.members,
    }))
}

/// Does the next step of a request.
pub(super) async fn change(
    State(shared): State<Shared>,
    Json(request): Json<Request>,
) -> Result<Json<Answer>, Response> {
    if let Wanted::Add { address, .. } | Wanted::Replace { address, .. } = &request.wanted
        && let Err(why) = usable(address, shared.about.config.trusts_network())
    {
        return Ok(Json(Answer::new(Step::Refused, why)));
    }
    ask(&shared.mailbox, |reply| Command::Members(request, reply)).await.map(Json)
}

fn usable(text: &str, trusts_network: bool) -> Result<(), String> {
    let address: Address = text.parse().map_err(|why| format!("{text}: {why}"))?;
    if !address.is_local() && !trusts_network {
        let why = "is not on this machine, and these nodes have no `key_file`, by which nodes of several machines know each other";
        return Err(format!("{text}: it {why}"));
    }
    Ok(())
}
