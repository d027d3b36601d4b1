//! A plain HTTP client: one request on a connection, its reply read to the end.
#![allow(dead_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for bytes of a reply.
const PATIENCE: Duration = Duration::from_secs(120);

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
    /// The documents of a stream, which must end with `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let mut data: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{text}");
        data.into_iter().map(|event| serde_json::from_str(event).unwrap_or_else(|e| panic!("{e}: {event}"))).collect()
    }
}

/// Sends a request; its reply is not read.
pub fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    if method == "POST" && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head += "Content-Type: application/json\r\n";
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    // The server may answer before it has read the body.
    let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat());
    stream
}

/// Reads a reply to its end.
pub fn reply(stream: TcpStream) -> Reply {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let status = line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut headers = vec![];
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let chunked =
        headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked");
    let mut body = vec![];
    // (A reset after the body is no fault.)
    let _ = reader.read_to_end(&mut body);
    Reply { status, headers, body: if chunked { joined(&body) } else { body } }
}

/// The bytes of chunks.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    while let Some(end) = chunks.windows(2).position(|w| w == b"\r\n") {
        let length =
            std::str::from_utf8(&chunks[..end]).ok().and_then(|n| usize::from_str_radix(n, 16).ok()).expect("a length");
        out.extend(&chunks[end + 2..end + 2 + length]);
        chunks = &chunks[end + 4 + length..];
    }
    out
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    reply(send(address, "GET", path, &[], b""))
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    reply(send(address, "POST", path, &[], body.to_string().as_bytes()))
}
