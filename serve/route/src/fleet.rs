//! The replicas: how each of them is, and which one a request goes to.
//!
//! Requests with the same beginning go to the same replica, whose cache has it (rendezvous hashing, Thaler and
//! Ravishankar 1998), unless that one has a quarter more than its share of requests (consistent hashing with bounded
//! loads, Mirrokni et al. 2018, arXiv 1608.01350): then to the next one of the request's order.

use crate::pool::Pool;
use axum::http::Uri;
use axum::http::uri::Authority;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// How a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It takes requests.
    Up,
    /// A request to it has failed: it is asked how it is, and gets requests where no other one takes them.
    Suspect,
    /// It ends what it has, and takes no further requests.
    Draining,
    /// It does not answer, or cannot serve.
    Down,
}

/// A server behind the router.
pub(crate) struct Replica {
    /// Its host and port.
    pub(crate) authority: Authority,
    state: watch::Sender<State>,
    /// Why it is not up, for errors.
    reason: Mutex<String>,
    under_way: AtomicUsize,
    pub(crate) pool: Pool,
    /// Has its health looked at.
    pub(crate) look: Notify,
}

impl Replica {
    /// The replica of a URL.
    ///
    /// # Errors
    /// A URL of another form than `http://HOST:PORT`.
    fn new(url: &str) -> Result<Replica, String> {
        let wrong = |why: &str| format!("`{url}` is no replica ({why}): give a URL such as http://10.0.0.1:8080");
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let authority = uri.authority().cloned().ok_or_else(|| wrong("it has no host"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("replicas are asked without TLS")),
            _ => return Err(wrong("it does not begin with http://")),
        }
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(wrong("it has a path"));
        }
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user's name"));
        }
        let (state, reason, under_way) = (watch::channel(State::Up).0, Mutex::default(), AtomicUsize::new(0));
        Ok(Replica { authority, state, reason, under_way, pool: Pool::default(), look: Notify::new() })
    }

    /// Its address, to connect to.
    pub(crate) fn address(&self) -> (&str, u16) {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        (host, self.authority.port_u16().unwrap_or(80))
    }

    /// How it is.
    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Why it is not up.
    pub(crate) fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests it has of this router's.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// Says how it is, and why.
    pub(crate) fn set(&self, state: State, why: &str) {
        why.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.state.send_if_modified(|now| std::mem::replace(now, state) != state);
    }

    /// A request to it has failed: it is asked how it is.
    pub(crate) fn suspect(&self, why: &str) {
        if self.state() == State::Up {
            self.set(State::Suspect, why);
        }
        self.look.notify_one();
    }

    /// Waits until it is down.
    pub(crate) async fn fails(&self) {
        let mut states = self.state.subscribe();
        if states.wait_for(|state| *state == State::Down).await.is_err() {
            // (The sender lives as long as `self`.)
            std::future::pending::<()>().await;
        }
    }
}

/// A request's place at a replica.
pub(crate) struct Lease {
    pub(crate) index: usize,
    pub(crate) replica: Arc<Replica>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.replica.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All replicas.
pub(crate) struct Fleet {
    pub(crate) replicas: Vec<Arc<Replica>>,
}

impl Fleet {
    /// The replicas of URLs.
    ///
    /// # Errors
    /// None, one twice, or one of another form.
    pub(crate) fn new(urls: &[String]) -> Result<Fleet, String> {
        let replicas = urls.iter().map(|url| Replica::new(url)).collect::<Result<Vec<Replica>, String>>()?;
        for (i, replica) in replicas.iter().enumerate() {
            if replicas[..i].iter().any(|other| other.authority == replica.authority) {
                return Err(format!("replica {} is given twice: give it once", replica.authority));
            }
        }
        match replicas.is_empty() {
            true => Err("there is no replica: give at least one (--replica http://HOST:PORT)".into()),
            false => Ok(Fleet { replicas: replicas.into_iter().map(Arc::new).collect() }),
        }
    }

    /// A place for a request whose beginning has the hash `key`; `None`: no replica takes it, but perhaps one of
    /// `avoid`.
    pub(crate) fn choose(&self, key: u64, avoid: &[usize]) -> Option<Lease> {
        let all = |state: State| -> Vec<usize> {
            let takes = |i: &usize| !avoid.contains(i) && self.replicas[*i].state() == state;
            (0..self.replicas.len()).filter(takes).collect()
        };
        let mut may = all(State::Up);
        if may.is_empty() {
            may = all(State::Suspect);
        }
        let load = |i: &usize| self.replicas[*i].under_way();
        // (A quarter more than an equal share, the new request included.)
        let most = ((may.iter().map(load).sum::<usize>() + 1) * 5).div_ceil(4 * may.len().max(1));
        may.sort_by_key(|i| std::cmp::Reverse(score(key, self.replicas[*i].authority.as_str())));
        let chosen = may.iter().find(|i| load(i) < most).or_else(|| may.iter().min_by_key(|i| load(i)));
        chosen.map(|i| self.lease(*i))
    }

    /// A place at a replica, however it is.
    pub(crate) fn lease(&self, index: usize) -> Lease {
        let replica = self.replicas[index].clone();
        replica.under_way.fetch_add(1, Ordering::SeqCst);
        Lease { index, replica }
    }

    /// Whether any replica takes requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.replicas.iter().any(|replica| matches!(replica.state(), State::Up | State::Suspect))
    }
}

/// A replica's place in the order of a request.
fn score(key: u64, name: &str) -> u64 {
    mixed(hash(key, name.as_bytes()))
}

/// FNV-1a, begun with another hash: the same in every router.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The last bits of a hash spread over all (the finalizer of SplitMix64).
pub(crate) fn mixed(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(n: usize) -> Fleet {
        Fleet::new(&(0..n).map(|i| format!("http://10.0.0.{i}:80")).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn urls_are_checked() {
        let of = |url: &str| Fleet::new(&[url.to_owned()]).map(|fleet| fleet.replicas[0].authority.to_string());
        assert_eq!(of("http://localhost:8080").unwrap(), "localhost:8080");
        assert_eq!(of("http://[::1]:8080/").unwrap(), "[::1]:8080");
        for url in ["", "localhost:80", "https://a:1", "http://a/b", "http://", "ftp://a", "http://me@a:1"] {
            assert!(of(url).unwrap_err().contains("http://10.0.0.1:8080"), "{url}");
        }
        assert!(Fleet::new(&[]).is_err_and(|e| e.contains("--replica")));
        let twice = ["http://a:1".to_owned(), "http://a:1/".to_owned()];
        assert!(Fleet::new(&twice).is_err_and(|e| e.contains("given twice")));
    }

    #[test]
    fn requests_stay_where_they_were_and_loads_are_bounded() {
        let fleet = fleet(4);
        let alone = |key| fleet.choose(key, &[]).unwrap().index;
        let first: Vec<usize> = (0..1000).map(alone).collect();
        assert_eq!(first, (0..1000).map(alone).collect::<Vec<_>>());
        for i in 0..4 {
            let share = first.iter().filter(|chosen| **chosen == i).count();
            assert!((180..320).contains(&share), "{share} of 1000");
        }
        // Requests of a replica that fails go to all others, and no other request moves.
        fleet.replicas[2].set(State::Down, "gone");
        for (key, before) in first.iter().enumerate() {
            let now = alone(key as u64);
            assert!(if *before == 2 { now != 2 } else { now == *before });
        }
        // Forty of one beginning at once.
        let held: Vec<Lease> = (0..40).map(|_| fleet.choose(7, &[]).unwrap()).collect();
        let most = fleet.replicas.iter().map(|replica| replica.under_way()).max().unwrap();
        assert!(most <= 17, "{most}");
        drop(held);
        assert!(fleet.replicas.iter().all(|replica| replica.under_way() == 0));
    }

    #[test]
    fn suspects_come_last_and_others_not_at_all() {
        let fleet = fleet(3);
        fleet.replicas[0].suspect("reset");
        fleet.replicas[1].set(State::Draining, "");
        assert!((0..50).all(|key| fleet.choose(key, &[]).unwrap().index == 2));
        assert!((0..50).all(|key| fleet.choose(key, &[2]).unwrap().index == 0));
        assert!(fleet.choose(1, &[0, 2]).is_none());
        assert_eq!(fleet.replicas[0].reason(), "reset");
    }
}
