//! `llmcc chat`: commands by a pipe, and a user at a terminal.

use crate::common::{Folder, WITH_TOKENIZER, text};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn model(context: &str) -> Folder {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", context]);
    f
}

/// The answers of a conversation by a pipe, and everything else that is said.
fn talk(f: &Folder, args: &[&str], lines: &str) -> (String, String) {
    let done = f.piped(&[&["chat", "m.so", "--greedy", "-n", "8"], args].concat(), lines);
    assert!(done.status.success(), "{}", text(&done.stderr));
    (text(&done.stdout), text(&done.stderr))
}

#[test]
fn commands_by_a_pipe() {
    let f = model("512");
    let alone = |more: &[&str]| {
        let run = ["run", "m.so", "--chat", "--greedy", "-n", "8", "-f", "-"];
        text(&f.piped(&[&run[..], more].concat(), "hi\n").stdout)
    };
    let brief = ["--system", "be brief"];
    let (answers, said) = talk(&f, &["--stats"], "hi\n\n/stats\n/reset\n/system be brief\nhi\n/save a.json\n");
    assert_eq!(answers, alone(&[]) + &alone(&brief));
    for part in [
        "1 turn; ",
        " of a context of 512",
        "[all turns are forgotten]",
        "[the system message is set]",
        "[1 turn written to a.json]",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("prompt tokens (").count(), 3, "two answers, and /stats: {said}");
    let saved: Value = serde_json::from_slice(&std::fs::read(f.at("a.json")).expect("saved")).expect("JSON");
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let answer = alone(&brief).trim_end_matches('\n').to_owned();
    let want = json!([message("system", "be brief"), message("user", "hi"), message("assistant", &answer)]);
    assert_eq!(saved["messages"], want);
    // A conversation goes on in another process as it would in one.
    let whole = talk(&f, &brief, "hi\nand then?\n").0;
    let (rest, said) = talk(&f, &["--load", "a.json"], "and then?\n");
    assert_eq!(alone(&brief) + &rest, whole);
    assert!(said.contains("[1 turn read from a.json]"), "{said}");
    assert_eq!(talk(&f, &[], "/load a.json\nand then?\n").0, rest);
    // Messages of several lines, and with a slash.
    let (_, said) = talk(&f, &[], "\"\"\"\none\n/two\n\"\"\"\nthree \\\nfour\n//five\n/save b.json\n/quit\nnever\n");
    let saved: Value = serde_json::from_slice(&std::fs::read(f.at("b.json")).expect("saved")).expect("JSON");
    let user = |i: usize| saved["messages"][2 * i]["content"].clone();
    assert_eq!([user(0), user(1), user(2)], ["one\n/two", "three \nfour", "/five"]);
    assert!(saved["messages"].as_array().is_some_and(|list| list.len() == 6), "{said}");
}

#[test]
fn settings_and_second_tries() {
    let f = model("512");
    let options = ["--temperature", "0.9", "--seed", "3", "-n", "8"];
    let drawn = |seed: &str| {
        text(&f.llmcc(&["run", "m.so", "--chat", "-p", "hi", "-n", "8", "--temperature", "0.9", "--seed", seed]).stdout)
    };
    let chat = |args: &[&str], lines: &str| {
        let done = f.piped(&[&["chat", "m.so"], args].concat(), lines);
        assert!(done.status.success(), "{}", text(&done.stderr));
        (text(&done.stdout), text(&done.stderr))
    };
    let (answers, said) = chat(&options, "hi\n/retry\n/save a.json\n");
    assert_eq!(answers, drawn("3") + &drawn("4"));
    assert!(said.contains("[seed 4]"), "{said}");
    let saved: Value = serde_json::from_slice(&std::fs::read(f.at("a.json")).expect("saved")).expect("JSON");
    assert_eq!(saved["messages"].as_array().map(Vec::len), Some(2), "the old answer is gone: {saved}");
    let (answers, said) = chat(
        &["--greedy"],
        "/set temperature 0.9\n/set seed 4\n/set max_tokens 8\n/set\nhi\n/set temperature -1\n/set foo 1\n",
    );
    assert_eq!(answers, drawn("4"));
    for part in [
        "temperature        0.9",
        "seed               4",
        "max_tokens         8",
        "a positive number",
        "`foo` is no setting",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Errors end neither the conversation nor a file.
#[test]
fn mistakes_are_said() {
    let f = model("512");
    std::fs::write(f.at("mine.txt"), "mine").expect("written");
    std::fs::write(f.at("bad.json"), r#"{"messages": [{"role": "user", "content": "a"}]}"#).expect("written");
    let lines =
        "/retry\n/sytem x\n/save mine.txt\n/load nowhere.json\n/load mine.txt\n/load bad.json\n/save\n/help\nhi\n";
    let (answers, said) = talk(&f, &[], lines);
    assert_eq!(answers.lines().count(), 1, "{answers}");
    for part in [
        "no message to answer anew",
        "did you mean /system?",
        "mine.txt exists and is no conversation",
        "nowhere.json: cannot open",
        "mine.txt: it is not JSON",
        "bad.json: its last message has no answer",
        "/save needs the name of a file",
        "/system TEXT",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("error:").count(), 7, "{said}");
    assert_eq!(std::fs::read_to_string(f.at("mine.txt")).expect("there"), "mine");
    let done = f.llmcc(&["chat", "m.so", "--load", "bad.json"]);
    assert!(!done.status.success() && text(&done.stderr).contains("bad.json: its last message"));
}

/// A full context drops the oldest turns, and never the system message.
#[test]
fn the_system_message_stays() {
    let f = model("160");
    let lines = format!("{}/save a.json\n/stats\n", "tell me more about it, and then some\n".repeat(9));
    let (answers, said) = talk(&f, &["--system", "Be brief."], &lines);
    assert_eq!(answers.lines().count(), 9, "{answers}");
    assert!(said.contains("[the context of 160 tokens is full: the oldest turn is forgotten]"), "{said}");
    let saved: Value = serde_json::from_slice(&std::fs::read(f.at("a.json")).expect("saved")).expect("JSON");
    let list = saved["messages"].as_array().expect("a list");
    assert!(list[0]["content"] == "Be brief." && list.len() < 15 && list.len() % 2 == 1, "{saved}");
    assert!(said.contains(&format!("{} turns, a system message; ", (list.len() - 1) / 2)), "{said}");
}

/// A terminal with `llmcc` in it.
struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<String>>,
    /// Everything before was looked at.
    read: usize,
}

impl Terminal {
    fn new(command: &mut Command) -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers are written; the size is read; no name and no settings are given.
        let made = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(made, 0, "a pseudo terminal");
        // SAFETY: nobody else has them.
        let (keys, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let end = || Stdio::from(theirs.try_clone().expect("a copy"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        // SAFETY: both calls may be made between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            })
        };
        let child = command.spawn().expect("llmcc runs");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut output, all) = (keys.try_clone().expect("a copy"), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The terminal ends with an error when its last program has gone.
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                all.lock().expect("alive").push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Terminal { child, keys, shown, read: 0 }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for a text behind all that was waited for before.
    #[track_caller]
    fn wait(&mut self, part: &str) {
        let start = Instant::now();
        loop {
            let all = self.shown.lock().expect("alive").clone();
            if let Some(at) = all[self.read..].find(part) {
                self.read += at + part.len();
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no {part:?} in {:?}", &all[self.read..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_user_at_a_terminal() {
    let f = model("1024");
    let start = |more: &[&str]| {
        let args = [&["chat", "m.so", "--greedy", "--ignore-eos"], more].concat();
        let mut t = Terminal::new(f.command(&args).env("XDG_STATE_HOME", f.at("state")));
        t.wait("m: context of 1024 tokens; /help lists commands");
        t.wait("> ");
        t
    };
    let beginning =
        text(&f.llmcc(&["run", "m.so", "--chat", "--greedy", "--ignore-eos", "-n", "3", "-p", "hi"]).stdout);
    let mut t = start(&["-n", "1000"]);
    t.press("hi\r");
    // Ctrl-C stops an answer, and what has come of it stays.
    t.wait("\n");
    t.wait(beginning.trim());
    t.press("\x03");
    t.wait("[stopped]");
    t.wait("> ");
    t.press("/stats\r");
    t.wait("1 turn; ");
    t.wait("> ");
    // At the prompt it throws a line away.
    t.press("never\x03");
    t.wait("[Ctrl-D ends]");
    t.wait("> ");
    t.press("/set max_tokens 4\r");
    t.wait("> ");
    // A message of two lines; Tab completes commands.
    t.press("one \\\rtwo\r");
    t.wait("[cut after 4 tokens");
    t.wait("> ");
    t.press("/sa\t");
    t.wait("/save ");
    t.press("a.json\r");
    t.wait("[2 turns written to a.json]");
    t.wait("> ");
    t.press("\x04");
    assert!(t.child.wait().expect("ends").success());
    let saved: Value = serde_json::from_slice(&std::fs::read(f.at("a.json")).expect("saved")).expect("JSON");
    assert_eq!(saved["messages"][2]["content"], "one \ntwo", "{saved}");
    // Lines typed before are there in the next conversation, for this user alone.
    let history = f.at("state/llmcc/chat_history");
    assert_eq!(std::fs::metadata(&history).expect("kept").permissions().mode() & 0o77, 0);
    let mut t = start(&["-n", "2"]);
    t.press("\x1b[A\x1b[A");
    t.wait("one \\");
    t.press("\r");
    t.wait("[cut after 2 tokens");
    t.press("\x04");
    assert!(t.child.wait().expect("ends").success());
    // Unless they are not to be kept.
    let before = std::fs::read(&history).expect("kept");
    let mut t = start(&["-n", "2", "--no-history"]);
    t.press("secret\r");
    t.wait("[cut after 2 tokens");
    t.press("\x04");
    assert!(t.child.wait().expect("ends").success() && std::fs::read(&history).expect("kept") == before);
}
