//! LLVM in processes of its own: one child per worker, fed with modules through pipes.
//!
//! A request is three texts (the stage, chip and features, MLIR), an answer a byte (0: done, 1:
//! refused) and a text; texts are preceded by their length, four bytes, low byte first.

pub use crate::stage::Stage;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

/// Where LLVM runs.
#[derive(Clone, Debug)]
pub enum Llvm {
    /// Nowhere: this compiler was built without it.
    Absent,
    /// In this process, which a fatal error of LLVM ends.
    #[cfg(feature = "llvm")]
    Here,
    /// In children: a program, with arguments that make it call [`serve`].
    Child(PathBuf, Vec<String>),
}

/// Something that lowers one module after the other.
pub struct Worker {
    kind: Kind,
}

enum Kind {
    Absent,
    #[cfg(feature = "llvm")]
    Here,
    Child {
        llvm: Llvm,
        process: Option<Process>,
    },
}

#[cfg(feature = "llvm")]
thread_local! {
    /// Contexts of MLIR stay on their thread.
    static COMPILER: crate::llvm::Compiler = crate::llvm::Compiler::new();
}

struct Process {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    said: Option<JoinHandle<String>>,
}

/// Why a module was not lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// MLIR or LLVM refused it, with this message.
    #[error("{0}")]
    Refused(String),
    /// LLVM ended its process: how, and with which output.
    #[error("LLVM's process ended ({0})")]
    Died(String),
}

impl Worker {
    /// A worker; its process starts with the first module.
    pub fn new(llvm: &Llvm) -> Worker {
        let kind = match llvm {
            #[cfg(feature = "llvm")]
            Llvm::Here => Kind::Here,
            Llvm::Absent => Kind::Absent,
            Llvm::Child(..) => Kind::Child { llvm: llvm.clone(), process: None },
        };
        Worker { kind }
    }

    /// Lowers a module for `chip` with LLVM's `features`. After [`WorkerError::Died`] the next
    /// module gets a new process.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn lower(&mut self, mlir: &str, chip: &str, features: &str, stage: Stage) -> Result<String, WorkerError> {
        match &mut self.kind {
            Kind::Absent => Err(WorkerError::Refused("this llmcc was built without LLVM".into())),
            #[cfg(feature = "llvm")]
            Kind::Here => COMPILER.with(|c| c.lower(mlir, chip, features, stage)).map_err(WorkerError::Refused),
            Kind::Child { llvm, process } => {
                let running = match process.take() {
                    Some(p) => p,
                    None => start(llvm).map_err(|e| WorkerError::Died(format!("it did not start: {e}")))?,
                };
                let running = process.insert(running);
                match running.ask(mlir, chip, features, stage) {
                    Ok(answer) => answer.map_err(WorkerError::Refused),
                    Err(e) => {
                        Err(WorkerError::Died(process.take().map_or_else(|| e.to_string(), |p| p.last_words(&e))))
                    }
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself when its input ends; one that hangs must not keep us.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(llvm: &Llvm) -> io::Result<Process> {
    let (program, args) = match llvm {
        #[cfg(feature = "llvm")]
        Llvm::Here => return Err(io::Error::other("LLVM runs in this process")),
        Llvm::Absent => return Err(io::Error::other("there is no LLVM")),
        Llvm::Child(program, args) => (program, args),
    };
    let mut child =
        Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let missing = || io::Error::other("no pipe");
    let to = child.stdin.take().ok_or_else(missing)?;
    let from = child.stdout.take().ok_or_else(missing)?;
    let mut stderr = child.stderr.take().ok_or_else(missing)?;
    let listen = move || {
        let mut bytes = vec![];
        // A part of the output is enough for a message.
        let _ = stderr.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).trim().to_string()
    };
    let mut process = Process { child, to, from, said: None };
    process.said = Some(std::thread::Builder::new().spawn(listen)?);
    Ok(process)
}

impl Process {
    fn ask(&mut self, mlir: &str, chip: &str, features: &str, stage: Stage) -> io::Result<Result<String, String>> {
        for text in [stage.name(), chip, features, mlir] {
            put(&mut self.to, text)?;
        }
        self.to.flush()?;
        let mut refused = [0];
        self.from.read_exact(&mut refused)?;
        let text = get(&mut self.from)?;
        Ok(if refused[0] == 0 { Ok(text) } else { Err(text) })
    }

    /// How the process ended, and its output.
    fn last_words(mut self, e: &io::Error) -> String {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let said = if said.is_empty() { e.to_string() } else { said };
        format!("{status}: {said}")
    }
}

fn put(out: &mut impl Write, text: &str) -> io::Result<()> {
    let len = u32::try_from(text.len()).map_err(io::Error::other)?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(text.as_bytes())
}

fn get(from: &mut impl Read) -> io::Result<String> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let mut text = String::new();
    let len = u64::from(u32::from_le_bytes(len));
    if from.take(len).read_to_string(&mut text)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text)
}

/// The child's side: lowers each request until the input ends.
///
/// # Errors
/// The pipes broke.
#[cfg(feature = "llvm")]
pub fn serve(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let compiler = crate::llvm::Compiler::new();
    loop {
        let stage = match get(&mut from) {
            Ok(stage) => stage,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        };
        let (chip, features, mlir) = (get(&mut from)?, get(&mut from)?, get(&mut from)?);
        let answer = match Stage::parse(&stage) {
            Some(stage) => compiler.lower(&mlir, &chip, &features, stage),
            None => Err(format!("there is no stage {stage}")),
        };
        to.write_all(&[u8::from(answer.is_err())])?;
        put(&mut to, &answer.unwrap_or_else(|e| e))?;
        to.flush()?;
    }
}

/// Keeps a module that could not be lowered, for a report: where.
pub(crate) fn keep(entry: &str, mlir: &str) -> Result<PathBuf, io::Error> {
    let path: PathBuf = std::env::temp_dir().join(format!("llmcc-{entry}-{}.mlir", std::process::id()));
    std::fs::write(Path::new(&path), mlir)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Worker {
        Worker::new(&Llvm::Child("/bin/sh".into(), vec!["-c".into(), script.into()]))
    }

    #[test]
    fn a_child_that_dies_is_an_error_with_its_last_words() {
        let mut worker = shell("head -c 20 >/dev/null; echo LLVM ERROR: cannot select >&2; kill -ABRT $$");
        for _ in 0..2 {
            let Err(WorkerError::Died(how)) = worker.lower("module {}", "sm_90a", "+ptx80", Stage::Ptx) else {
                panic!("it lives")
            };
            assert!(how.contains("LLVM ERROR: cannot select") && how.contains("signal"), "{how}");
        }
    }

    #[test]
    fn a_child_that_does_not_start_is_an_error() {
        let mut worker = Worker::new(&Llvm::Child("/no/such/program".into(), vec![]));
        assert!(matches!(worker.lower("", "sm_90a", "+ptx80", Stage::Ptx), Err(WorkerError::Died(_))));
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let mut worker = shell("printf '\\000\\377\\000\\000\\000short'");
        assert!(matches!(worker.lower("", "sm_90a", "+ptx80", Stage::Ptx), Err(WorkerError::Died(_))));
    }

    #[cfg(feature = "llvm")]
    #[test]
    fn the_child_answers_each_request() {
        let mut input = vec![];
        for mlir in [
            "module { gpu.module @m { llvm.func @k() attributes {gpu.kernel, nvvm.kernel} { llvm.return } } }",
            "nonsense",
        ] {
            for text in ["ptx", "sm_90a", "+ptx80", mlir] {
                put(&mut input, text).expect("memory");
            }
        }
        let mut output = vec![];
        serve(&input[..], &mut output).expect("memory");
        let mut from = &output[1..];
        let ptx = get(&mut from).expect("an answer");
        assert!(output[0] == 0 && ptx.contains(".entry k"), "{ptx}");
        assert_eq!(from[0], 1);
        let message = get(&mut &from[1..]).expect("an answer");
        assert!(
            message.contains("does not parse") && message.contains("nonsense") || message.contains("expected"),
            "{message}"
        );
    }
}
