//! Word that a server listens: for whoever started it, and for systemd.

use crate::{Error, stdout};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the socket of a service manager that waits for word (`Type=notify`; `sd_notify`).
const SOCKET: &str = "NOTIFY_SOCKET";

/// Says where a server listens, now that it takes requests.
///
/// # Errors
/// Standard output cannot be written, or the service manager is not reached.
pub fn announce(url: &str) -> Result<(), Error> {
    match stdout::print(&format!("listening at {url}\n")) {
        // Nobody wants to know.
        Ok(()) | Err(Error::ClosedPipe) => {}
        Err(e) => return Err(e),
    }
    match std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) {
        None => Ok(()),
        Some(socket) => notify(&socket, url).map_err(|e| Error::io("write to", &socket, e)),
    }
}

/// Tells a service manager that the service is ready.
fn notify(socket: &OsStr, url: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let message = format!("READY=1\nSTATUS=listening at {url}\n");
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_managers_hear_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("llmcc-notify-{}", std::process::id());
        let path = folder.path().join("notify");
        for (socket, address) in [
            (format!("@{name}"), SocketAddr::from_abstract_name(&name).unwrap()),
            (path.to_str().unwrap().to_owned(), SocketAddr::from_pathname(&path).unwrap()),
        ] {
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            notify(OsStr::new(&socket), "http://127.0.0.1:8080").unwrap();
            let mut heard = [0; 256];
            let n = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..n], b"READY=1\nSTATUS=listening at http://127.0.0.1:8080\n");
        }
        assert!(notify(OsStr::new("/nowhere/notify"), "").is_err());
    }
}
