//! Looks at replicas' health: at each now and then, and at once where a request to it has failed.

use crate::app::App;
use crate::fleet::{Replica, State};
use crate::race::first;
use crate::upstream::{Outgoing, ask};
use axum::body::Bytes;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Times in a row that a replica may be late before it is down: it may be busy.
const LATE: u32 = 3;
/// Longest pause between two looks at a replica that is down.
const LONGEST: Duration = Duration::from_secs(10);

/// Result of a look at a replica.
enum Seen {
    Is(State, &'static str),
    /// It does not answer in time.
    Late,
    Fails(String),
}

/// Looks at all replicas from now on.
pub(crate) fn watch(app: &Arc<App>) {
    for replica in &app.fleet.replicas {
        tokio::spawn(follow(app.clone(), replica.clone()));
    }
}

async fn follow(app: Arc<App>, replica: Arc<Replica>) {
    let settings = &app.settings;
    let (mut late, mut pause) = (0, settings.check);
    loop {
        match look(&replica, settings.connect).await {
            Seen::Is(state, why) => {
                (late, pause) = (0, settings.check);
                replica.set(state, why);
            }
            Seen::Late => {
                late += 1;
                if late >= LATE {
                    let why = format!("it did not say how it is within {} ms", settings.connect.as_millis());
                    replica.set(State::Down, &why);
                    pause = (2 * pause).min(LONGEST);
                }
            }
            Seen::Fails(why) => {
                late = 0;
                replica.set(State::Down, &why);
                pause = (2 * pause).min(LONGEST);
            }
        }
        // (A replica that is down and asked for is looked at again no sooner than one that is up.)
        if first(replica.look.notified(), sleep(pause)).await.is_ok() && replica.state() == State::Down {
            sleep(settings.check).await;
        }
    }
}

/// How a replica is: `/ready` says whether it takes requests, `/health` whether it works at all.
async fn look(replica: &Arc<Replica>, patience: Duration) -> Seen {
    let status = |path: &'static str| async move {
        let (method, path) = (Method::GET, PathAndQuery::from_static(path));
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        // (A new connection each time: the replica must take them.)
        let outgoing = Outgoing { method: &method, path: &path, headers, body, idle: 0 };
        match timeout(patience, ask(replica, outgoing, patience)).await {
            Err(_) => Err(Seen::Late),
            Ok(Err(why)) => Err(Seen::Fails(why)),
            Ok(Ok(answer)) => Ok(answer.head.status.as_u16()),
        }
    };
    let ready = match status("/ready").await {
        Err(seen) => return seen,
        Ok(ready) => ready,
    };
    match (ready, status("/health").await) {
        (_, Err(seen)) => seen,
        (200, Ok(200)) => Seen::Is(State::Up, ""),
        (503, Ok(200)) => Seen::Is(State::Draining, "it is shutting down"),
        // A server without `/ready`.
        (_, Ok(200)) => Seen::Is(State::Up, ""),
        (_, Ok(health)) => Seen::Fails(format!("its /health answers {health}")),
    }
}
