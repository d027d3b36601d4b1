//! `llmcc chat`: a conversation in the terminal, with commands.

mod order;

use crate::args::{ChatArgs, SamplingArgs};
use crate::loaded::{GenOptions, Model};
use crate::manifest::Manifest;
use crate::report::message;
use crate::talk::{Conversation, Interrupt, Line, Lines, Manner, Speaker, answer, said, sampling};
use crate::units::count;
use crate::{Error, output, texts};
use llmcc_model::sys::llmcc_gen_stats_t;
use order::{Order, WORDS, help};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Bytes of a token that no line exceeds on average.
const LONG_TOKEN: usize = 256;

/// Talks until there are no more lines.
///
/// # Errors
/// Not an artifact; no chat template; standard input or output fails. Errors of a single line or answer are printed,
/// and the conversation goes on.
pub fn run(args: &ChatArgs) -> Result<(), Error> {
    let model = args.engine.open(&args.artifact)?;
    if model.info().hears {
        return Err(Error::Usage("this model writes what is said in a sound: use `llmcc run --audio FILE`".into()));
    }
    let manifest = Manifest::of_model(&model)?;
    let adapter = args.draft.adapter.as_ref().map_or(Ok(0), |folder| model.adapter_load(folder))?;
    let guesses = args.draft.source(&args.engine, &model)?;
    let own = sampling::options(&args.sampling, &manifest, true);
    let talk = Conversation::new(&model, &args.talk, &own)?;
    let seq = model.seq_new()?;
    model.seq_set_adapter(seq, adapter)?;
    let mut session = Session {
        source: Speaker { model: &model, seq: Some(seq), seen: vec![], compressor: None },
        talk,
        manifest: &manifest,
        sampling: args.sampling.clone(),
        fixed: GenOptions { adapter, guesses, most_guesses: args.draft.guesses.unwrap_or(0), ..GenOptions::default() },
        options: own,
        last: None,
        speed: None,
        manner: Manner { json: false, stats: args.stats },
    };
    session.choose();
    if let Some(file) = &args.load {
        session.load(file)?;
    }
    let mut lines = Lines::several(history(args), &WORDS)?;
    if lines.edited() {
        eprintln!("{}: context of {}; /help lists commands", name(&model), count(session.talk.limit(), "token"));
    }
    session.follow(&mut lines)
}

/// The artifact's name.
fn name(model: &Model) -> String {
    message(&model.path().file_stem().unwrap_or_default().to_string_lossy())
}

/// The file with the lines typed before.
fn history(args: &ChatArgs) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = || folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    let usual = || Some(state()?.join("llmcc/chat_history"));
    if args.no_history { None } else { args.history.clone().or_else(usual) }
}

/// A conversation under way.
struct Session<'a> {
    source: Speaker<'a>,
    talk: Conversation,
    manifest: &'a Manifest,
    sampling: SamplingArgs,
    /// Options that no command changes.
    fixed: GenOptions,
    options: GenOptions,
    /// The last message, also where its answer was stopped before it began.
    last: Option<String>,
    speed: Option<llmcc_gen_stats_t>,
    manner: Manner,
}

impl Session<'_> {
    /// Takes line after line.
    fn follow(&mut self, lines: &mut Lines) -> Result<(), Error> {
        let interrupt = Interrupt::new(lines.edited())?;
        loop {
            interrupt.wait();
            let order = match lines.next(self.talk.room().saturating_mul(LONG_TOKEN))? {
                Line::End => {
                    eprintln!();
                    return Ok(());
                }
                Line::Cleared => {
                    eprintln!("[Ctrl-D ends]");
                    continue;
                }
                Line::Text(line) if line.trim().is_empty() => continue,
                Line::Text(line) => Order::read(&line),
                Line::Refused(why) => Err(why),
            };
            if order == Ok(Order::Quit) {
                return Ok(());
            }
            interrupt.arm();
            match order.map_err(Error::Failed).and_then(|order| self.obey(order, &interrupt)) {
                Ok(()) => {}
                Err(e @ Error::ClosedPipe) => return Err(e),
                Err(e @ Error::Io { action: "write to", .. }) => return Err(e),
                Err(e) => eprintln!("error: {}", message(&e.to_string())),
            }
        }
    }

    fn obey(&mut self, order: Order, interrupt: &Interrupt) -> Result<(), Error> {
        match order {
            Order::Say(text) => self.say(&text, interrupt),
            Order::Help => {
                eprint!("{}", help());
                Ok(())
            }
            Order::System(text) => {
                eprintln!("[{}]", if text.is_some() { "the system message is set" } else { "no system message" });
                self.talk.set_system(text);
                Ok(())
            }
            Order::Reset => {
                self.talk.forget();
                self.last = None;
                eprintln!("[all turns are forgotten]");
                Ok(())
            }
            Order::Stats => {
                self.stats();
                Ok(())
            }
            Order::Save(file) => self.save(&expanded(&file)),
            Order::Load(file) => self.load(&expanded(&file)),
            Order::Set(None) => {
                eprint!("{}", self.settings());
                Ok(())
            }
            Order::Set(Some((name, value))) => {
                self.sampling.set(&name, &value).map_err(Error::Failed)?;
                self.choose();
                Ok(())
            }
            Order::Retry => self.retry(interrupt),
            Order::Quit => Ok(()),
        }
    }

    /// Options of generations by the settings.
    fn choose(&mut self) {
        let GenOptions { adapter, guesses, most_guesses, .. } = self.fixed.clone();
        let own = sampling::options(&self.sampling, self.manifest, true);
        self.options = GenOptions { adapter, guesses, most_guesses, ..own };
        self.talk.leave_room(&self.options);
    }

    fn say(&mut self, text: &str, interrupt: &Interrupt) -> Result<(), Error> {
        self.last = Some(text.to_owned());
        let how = (&self.options, interrupt);
        let made = answer(&mut self.source, &mut self.talk, text, self.manner, how)?;
        self.speed = made.stats.or(self.speed);
        Ok(())
    }

    /// Answers the last message anew. The old answer stays where no new one comes.
    fn retry(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        let Some(text) = self.last.clone() else {
            return Err(Error::Failed("there is no message to answer anew".into()));
        };
        let answered = self.talk.turns().last().is_some_and(|(message, _)| *message == text);
        let old = if answered { self.talk.take_last() } else { None };
        if self.options.temperature > 0.0 {
            self.sampling.seed = self.sampling.seed.wrapping_add(1);
            self.choose();
            eprintln!("[seed {}]", self.sampling.seed);
        } else {
            eprintln!("[the most likely tokens are the same again: /set temperature 0.7 gives another answer]");
        }
        let before = self.talk.turns().len();
        let done = self.say(&text, interrupt);
        if let Some((message, answer)) = old.filter(|_| self.talk.turns().len() == before) {
            self.talk.add(&message, answer);
        }
        done
    }

    fn stats(&self) {
        let turns = self.talk.turns().len();
        let system = if self.talk.system().is_some() { ", a system message" } else { "" };
        let tokens = count(self.source.seen.len(), "token");
        eprintln!("{}{system}; {tokens} of a context of {}", count(turns, "turn"), self.talk.limit());
        if let Some(speed) = &self.speed {
            said(speed);
        }
    }

    /// The settings, one on a line.
    fn settings(&self) -> String {
        let o = &self.options;
        let most = if o.max_tokens == 0 { "the model's, or none".into() } else { o.max_tokens.to_string() };
        let on = |is: bool| if is { "on" } else { "off" }.to_owned();
        let values = [
            o.temperature.to_string(),
            o.top_k.to_string(),
            o.top_p.to_string(),
            o.min_p.to_string(),
            o.repetition_penalty.to_string(),
            o.seed.to_string(),
            most,
            o.stop.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" "),
            on(self.sampling.greedy),
            on(o.ignore_eos),
        ];
        SamplingArgs::NAMES.iter().zip(values).map(|(name, value)| format!("  {name:<18} {value}\n")).collect()
    }

    fn save(&self, file: &Path) -> Result<(), Error> {
        if file.exists() && !texts::read(file).is_ok_and(|text| messages(&text).is_ok()) {
            let what = format!("{} exists and is no conversation: give another name", file.display());
            return Err(Error::Failed(what));
        }
        let text = format!("{:#}\n", json!({ "messages": self.talk.messages() }));
        output::write_text(file, &text).map_err(|e| Error::Failed(e.to_string()))?;
        eprintln!("[{} written to {}]", count(self.talk.turns().len(), "turn"), file.display());
        Ok(())
    }

    fn load(&mut self, file: &Path) -> Result<(), Error> {
        let wrong = |what: String| Error::Failed(format!("{}: {what}", file.display()));
        let list = messages(&texts::read(file)?).map_err(wrong)?;
        self.talk.replace(&list).map_err(wrong)?;
        self.last = self.talk.turns().last().map(|(message, _)| message.clone());
        eprintln!("[{} read from {}]", count(self.talk.turns().len(), "turn"), file.display());
        Ok(())
    }
}

/// The messages of a saved conversation: a list, or a document that has it.
fn messages(text: &str) -> Result<Vec<Value>, String> {
    let mut document: Value = serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?;
    let list = if document.is_array() { document } else { document["messages"].take() };
    match list {
        Value::Array(list) => Ok(list),
        _ => Err("it is no conversation: it has no list `messages`".into()),
    }
}

/// A file's name with the user's folder for a `~`.
fn expanded(name: &str) -> PathBuf {
    match (name.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => name.into(),
    }
}
