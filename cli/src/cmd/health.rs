//! `llmcc health`: asks a server how it is, for health checks of containers that have no other program.

use crate::Error;
use crate::args::HealthArgs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Bytes of an answer that are read: its first line is shorter.
const ANSWER: u64 = 4096;

/// Asks, and succeeds where the answer is 200.
///
/// # Errors
/// A URL of another form; no answer in time; another one.
pub fn run(args: &HealthArgs) -> Result<(), Error> {
    let url = args.url.trim_end_matches('/');
    let host = url.strip_prefix("http://").filter(|host| !host.is_empty() && !host.contains(['/', '@', '?', '#']));
    let host = host.ok_or_else(|| {
        let message = format!("`{url}` is no server that can be asked: give a URL such as http://127.0.0.1:8080");
        Error::Usage(message)
    })?;
    let path = if args.live { "/health" } else { "/ready" };
    let status = status(host, path, Duration::from_secs(args.timeout_seconds.into()));
    match status.map_err(|e| Error::Failed(format!("{url}{path}: {e}")))?.as_str() {
        "200" => Ok(()),
        other => Err(Error::Failed(format!("{url}{path} answers {other}"))),
    }
}

/// The status of an answer.
fn status(host: &str, path: &str, patience: Duration) -> io::Result<String> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { host.to_owned() } else { format!("{host}:80") };
    let address = place.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = vec![];
    stream.take(ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let mut words = answer.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some(version), Some(status)) if version.starts_with("HTTP/") => Ok(status.to_owned()),
        _ => Err(io::Error::other("no answer of a server")),
    }
}
