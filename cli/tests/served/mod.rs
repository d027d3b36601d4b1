//! `llmcc serve`, run in a folder.

use crate::client::get;
use crate::common::{Folder, text};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A server that runs.
pub struct Served {
    pub child: Child,
    pub address: SocketAddr,
}

impl Served {
    /// Serves `m.so`.
    pub fn start(f: &Folder, more: &[&str]) -> Served {
        Served::of(f, &[&["m.so"], more].concat())
    }
    /// Serves whatever the arguments name.
    pub fn of(f: &Folder, args: &[&str]) -> Served {
        Served::run(f, &[&["serve", "--port", "0", "--threads", "1"][..], args].concat())
    }
    /// Runs a command that says where it listens.
    pub fn run(f: &Folder, args: &[&str]) -> Served {
        let mut child = f.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("llmcc runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("read");
        let Some(address) = line.trim_end().strip_prefix("listening at http://") else {
            let _ = child.kill();
            panic!("{line}{}", text(&child.wait_with_output().expect("ends").stderr));
        };
        Served { address: address.parse().expect("an address"), child }
    }
    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }
    pub fn signal(&self, signal: i32) {
        // SAFETY: a system call without pointers, for a process of ours.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
    /// A count of `/metrics`.
    pub fn count(&self, name: &str) -> f64 {
        let page = get(self.address, "/metrics").text();
        let line =
            page.lines().find(|l| l.starts_with(&format!("{name}{{"))).unwrap_or_else(|| panic!("{name}: {page}"));
        line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")
    }
    pub fn wait_for(&self, name: &str, is: impl Fn(f64) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is(self.count(name)) {
            assert!(Instant::now() < end, "{name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
