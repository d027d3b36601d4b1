//! A proxy between the router and a replica that breaks connections where a test wants it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Fate of the next requests that are not about health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Pass,
    /// Each of so many is cut off after so many bytes of its answer.
    Cut(usize, usize),
    /// The first stands still after so many bytes of its answer, and so does everything after it.
    Hang(usize),
    /// All connections, also those about health, are closed at once.
    Dead,
    /// All of them get this answer.
    Answer(String),
}

/// A proxy.
pub struct Fuse {
    pub address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    /// Connections so far.
    connections: Arc<AtomicUsize>,
}

impl Fuse {
    /// One in front of a server.
    pub fn new(server: SocketAddr) -> Fuse {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let (address, plan) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Plan::Pass)));
        let (own, connections) = (plan.clone(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        spawn(move || {
            for client in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let plan = own.clone();
                spawn(move || drop(pass(client, server, &plan)));
            }
        });
        Fuse { address, plan, connections }
    }
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
    pub fn set(&self, plan: Plan) {
        *self.plan.lock().expect("sound") = plan;
    }
    pub fn plan(&self) -> Plan {
        self.plan.lock().expect("sound").clone()
    }
}

/// Bytes of the answer after which the connection breaks, and whether it stands still then.
fn limit(plan: &Mutex<Plan>, health: bool) -> (usize, bool) {
    let mut plan = plan.lock().expect("sound");
    match *plan {
        Plan::Hang(_) if health => (0, true),
        Plan::Hang(bytes) => {
            *plan = Plan::Hang(0);
            (bytes, true)
        }
        Plan::Cut(times, bytes) if !health => {
            *plan = if times > 1 { Plan::Cut(times - 1, bytes) } else { Plan::Pass };
            (bytes, false)
        }
        _ => (usize::MAX, false),
    }
}

fn pass(mut client: TcpStream, server: SocketAddr, plan: &Mutex<Plan>) -> std::io::Result<()> {
    let mut head = vec![0; 1 << 16];
    let n = client.read(&mut head)?;
    let now = plan.lock().expect("sound").clone();
    match now {
        Plan::Dead => return Ok(()),
        Plan::Answer(text) if !head.starts_with(b"GET /ready") && !head.starts_with(b"GET /health") => {
            client.write_all(text.as_bytes())?;
            client.shutdown(Shutdown::Write)?;
            client.set_read_timeout(Some(Duration::from_millis(200)))?;
            // (A connection that is closed with bytes unread is reset, and so may the answer be.)
            while client.read(&mut head)? > 0 {}
            return Ok(());
        }
        _ => {}
    }
    let health = head.starts_with(b"GET /ready") || head.starts_with(b"GET /health");
    let (most, hangs) = limit(plan, health);
    let mut upstream = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    upstream.write_all(&head[..n])?;
    let (mut requests, mut rest) = (client.try_clone()?, upstream.try_clone()?);
    spawn(move || {
        let _ = std::io::copy(&mut requests, &mut rest);
        let _ = rest.shutdown(Shutdown::Both);
    });
    let (mut left, mut bytes) = (most, vec![0; 1 << 14]);
    while left > 0 {
        let n = upstream.read(&mut bytes)?;
        if n == 0 {
            break;
        }
        let n = n.min(left);
        client.write_all(&bytes[..n])?;
        left -= n;
    }
    if left == 0 && hangs {
        sleep(Duration::from_secs(60));
    }
    // (The clone would keep it open.)
    client.shutdown(Shutdown::Both)?;
    upstream.shutdown(Shutdown::Both)
}
