//! Requests to another member's node, which this one passes on ([`crate::relay`]), and those of other members to this one.

use super::standstill::conflict;
use super::{Shared, ask, others};
use crate::key;
use crate::relay::{self, ANSWER_BYTES_MAX, Answer, Asked, Question};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path as Segment, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use skein_log::ClusterId;
use skein_replica::replica::Command;
use tokio::sync::mpsc::UnboundedReceiver;
use tower::ServiceExt;

/// Asks another member.
pub(super) async fn pass(
    State(shared): State<Shared>,
    Segment((replica, target)): Segment<(u64, String)>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    let config = shared.about.config.clone();
    let status = ask(&shared.mailbox, Command::Status).await?;
    let others = others(&config, &status);
    let address = others.into_iter().find(|(id, _)| *id == replica).map(|(_, address)| address);
    let address =
        address.ok_or_else(|| conflict(format!("replica {replica} is no other member")))?;
    let question = Question {
        method: method.to_string(),
        target: format!("/{target}"),
        kind: media_type(&headers),
        body: body.into(),
    };
    let asked = move || {
        let key = key::configured(&config).map_err(|error| error.to_string())?;
        relay::ask(&address, key.as_ref(), ClusterId(config.cluster()), question)
            .map_err(|error| format!("its node at {address} cannot be asked from here: {error}"))
    };
    let answer = tokio::task::spawn_blocking(asked).await.map_err(conflict)?.map_err(conflict)?;
    let status = StatusCode::from_u16(answer.status).map_err(conflict)?;
    Ok((status, [(CONTENT_TYPE, answer.kind)], answer.body).into_response())
}

/// Answers what other members ask, until the node ends.
pub(super) async fn answer_all(mut asked: UnboundedReceiver<Asked>, may_ask: Router) {
    while let Some(Asked { question, reply }) = asked.recv().await {
        let may_ask = may_ask.clone();
        tokio::spawn(async move {
            // It may have given up.
            let _ = reply.send(answer(question, may_ask).await);
        });
    }
}

async fn answer(question: Question, may_ask: Router) -> Answer {
    let Question { method, target, kind, body } = question;
    let request = Request::builder().method(&*method).uri(target).header(CONTENT_TYPE, kind);
    let answer = match request.body(Body::from(body)) {
        // It has answers to all requests.
        Ok(request) => may_ask.oneshot(request).await.unwrap_or_else(|never| match never {}),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let (status, kind) = (answer.status().as_u16(), media_type(answer.headers()));
    match to_bytes(answer.into_body(), ANSWER_BYTES_MAX as usize).await {
        Ok(body) => Answer { status, kind, body: body.into() },
        Err(why) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR.as_u16();
            Answer { status, kind: String::new(), body: why.to_string().into_bytes() }
        }
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().to_owned()
}
