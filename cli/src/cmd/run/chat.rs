//! `llmcc run --chat`: a single message, or a conversation, line by line, that goes on whatever happens to a single
//! answer.

use super::lines::{Line, Lines};
use super::result::Made;
use super::speaker::{Speaker, stats};
use crate::args::RunArgs;
use crate::loaded::{GenOptions, Model};
use crate::report::{count, message};
use crate::{Error, json, texts};
use serde_json::{Map, Value, json};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `LLMCC_FINISH_LENGTH` and `LLMCC_FINISH_CONTEXT` of the header.
const LENGTH: i32 = 3;
const CONTEXT: i32 = 4;
/// Bytes of a token that no line exceeds on average.
const LONG_TOKEN: usize = 256;

/// Talks until there are no more lines.
///
/// # Errors
/// No chat template; standard input or output fails. Errors of a single line or answer are printed,
/// and the conversation goes on.
pub(super) fn chat(source: &mut Speaker, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let model = source.model;
    let mut talk = Talk::new(model, args, options)?;
    if let Some(seq) = source.seq {
        model.seq_set_adapter(seq, options.adapter)?;
    }
    let mut lines = Lines::new()?;
    let interrupt = Interrupt::new(lines.edited())?;
    loop {
        interrupt.wait();
        match lines.next(talk.room.saturating_mul(LONG_TOKEN))? {
            Line::End => {
                eprintln!();
                return Ok(());
            }
            Line::Cleared => {}
            Line::Text(line) if line.is_empty() => {}
            Line::Text(line) => {
                interrupt.arm();
                match answer(source, &mut talk, &line, args, (options, &interrupt)) {
                    Ok(()) => {}
                    Err(e @ (Error::ClosedPipe | Error::Io { .. })) => return Err(e),
                    Err(e) if args.json => json::print(&json::error(&e))?,
                    Err(e) => eprintln!("error: {}", message(&e.to_string())),
                }
            }
            Line::Refused(why) if args.json => json::print(&json::error(&Error::Failed(why)))?,
            Line::Refused(why) => eprintln!("error: {why}"),
        }
    }
}

/// Answers a single message.
///
/// # Errors
/// No chat template, or it refuses the message; the message is too long.
pub(super) fn once(source: &mut Speaker, text: &str, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let mut talk = Talk::new(source.model, args, options)?;
    let ids = talk.fit(source.model, text)?;
    let mut generation = source.generate(&ids, options)?;
    let mut made = Made::new(Some(text));
    made.follow(&mut generation, args.json, &|| false)?;
    if args.json {
        super::super::print(&made.line(&generation)?)?;
    } else {
        super::super::print("\n")?;
        said_end(generation.stats()?.finish, made.tokens(), talk.limit);
    }
    stats(&generation, args)
}

/// Says where an answer was cut.
fn said_end(finish: i32, tokens: &[i32], limit: usize) {
    match finish {
        LENGTH => eprintln!("[cut after {}, the limit: -n N sets another]", count(tokens.len(), "token")),
        CONTEXT => eprintln!("[the context of {} is full: the answer ends here]", count(limit, "token")),
        _ => {}
    }
}

/// Answers a line, and makes both part of the conversation.
fn answer(
    source: &mut Speaker,
    talk: &mut Talk,
    line: &str,
    args: &RunArgs,
    (options, interrupt): (&GenOptions, &Interrupt),
) -> Result<(), Error> {
    let ids = talk.fit(source.model, line)?;
    if !source.prefill(&ids, options, &|| !interrupt.is_set())? {
        eprintln!("[stopped before the answer began: the message is forgotten]");
        return Ok(());
    }
    let mut generation = source.generate(&ids, options)?;
    let mut made = Made::new(Some(line));
    let done = made.follow(&mut generation, args.json, &|| interrupt.is_set());
    if !args.json {
        super::super::print("\n")?;
    }
    let finish = generation.stats()?.finish;
    done?;
    if args.json {
        super::super::print(&made.line(&generation)?)?;
    } else if interrupt.is_set() {
        eprintln!("[stopped]");
    } else {
        said_end(finish, made.tokens(), talk.limit);
    }
    stats(&generation, args)?;
    drop(generation);
    let (text, tokens) = made.into_parts();
    source.seen = [ids, tokens].concat();
    // (Templates may insist on turns that alternate.)
    if !text.is_empty() {
        talk.turns.push((line.to_owned(), text));
    }
    Ok(())
}

/// A conversation so far.
struct Talk {
    system: Option<Value>,
    /// Variables of the template, and the template in place of the model's.
    variables: Map<String, Value>,
    /// Lines of the user with the model's answers.
    turns: Vec<(String, String)>,
    /// Tokens that model and cache have room for.
    limit: usize,
    /// Tokens that a prompt may have, so that there is room for an answer.
    room: usize,
    /// Images of the message: rows and columns of their tokens.
    images: Vec<[u32; 2]>,
}

impl Talk {
    /// Nothing said yet.
    ///
    /// # Errors
    /// The model has no chat template, and none is given; that cannot be read.
    fn new(model: &Model, args: &RunArgs, options: &GenOptions) -> Result<Talk, Error> {
        let info = model.info();
        if !info.chat_template && args.chat_template.is_none() {
            let message = "it has no chat template; give one with --chat-template, or leave --chat out for plain text";
            return Err(Error::Artifact { path: args.artifact.clone(), message: message.into() });
        }
        let mut variables: Map<String, Value> = args.template_var.iter().cloned().collect();
        if let Some(file) = &args.chat_template {
            variables.insert("chat_template".into(), texts::read(file)?.into());
        }
        let limit = if info.cache_tokens > 0 { info.max_context.min(info.cache_tokens) } else { info.max_context };
        let wanted = if options.max_tokens == 0 { 256 } else { options.max_tokens as usize };
        let room = limit.saturating_sub(wanted.min(limit / 4).max(1));
        let system = args.system.as_ref().map(|s| json!({ "role": "system", "content": s }));
        Ok(Talk { system, variables, turns: vec![], limit, room, images: options.grids.clone() })
    }

    /// Tokens of the conversation without the first `without` turns, and with a new message.
    fn tokens(&self, model: &Model, without: usize, line: &str) -> Result<Vec<i32>, Error> {
        let turns = self.turns[without..].iter().flat_map(|(user, assistant)| {
            [json!({ "role": "user", "content": user }), json!({ "role": "assistant", "content": assistant })]
        });
        let new = match self.images.len() {
            0 => json!({ "role": "user", "content": line }),
            // As the templates of models that see have it: images first, then the text.
            n => {
                let images = std::iter::repeat_n(json!({ "type": "image" }), n);
                let parts: Vec<Value> = images.chain([json!({ "type": "text", "text": line })]).collect();
                json!({ "role": "user", "content": parts })
            }
        };
        let messages: Vec<Value> = self.system.iter().cloned().chain(turns).chain([new]).collect();
        let mut conversation = self.variables.clone();
        conversation.insert("messages".into(), messages.into());
        let mut prompt = model.apply_chat_template(&Value::Object(conversation).to_string())?;
        if !self.images.is_empty() {
            prompt = model.image_prompt(&prompt, &self.images)?;
        }
        model.tokenize(&prompt, false)
    }

    /// Tokens of the conversation with a new message; the oldest turns are forgotten if they do not
    /// fit.
    fn fit(&mut self, model: &Model, line: &str) -> Result<Vec<i32>, Error> {
        for without in 0..=self.turns.len() {
            let ids = self.tokens(model, without, line)?;
            let alone = without == self.turns.len();
            // After a long message there is room for at least the beginning of an answer.
            if ids.len() <= self.room || alone && ids.len() < self.limit {
                if without > 0 {
                    self.turns.drain(..without);
                    eprintln!(
                        "[the context of {} is full: the oldest {} forgotten]",
                        count(self.limit, "token"),
                        if without == 1 { "turn is".into() } else { format!("{without} turns are") }
                    );
                }
                return Ok(ids);
            }
            if alone {
                return Err(Error::Failed(format!(
                    "the message is too long: it has {} with the chat template, but the context has room for \
                        {}; send a shorter one",
                    count(ids.len(), "token"),
                    self.limit
                )));
            }
        }
        Ok(vec![])
    }
}

/// Ctrl-C: stops an answer, not the program. Where nobody edits lines, it ends the program between answers.
struct Interrupt {
    set: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    edited: bool,
}

impl Interrupt {
    fn new(edited: bool) -> Result<Interrupt, Error> {
        let it = Interrupt { set: Arc::default(), ends: Arc::default(), edited };
        // In this order: the handler that ends the program comes first.
        flag::register_conditional_default(SIGINT, it.ends.clone())
            .and_then(|_| flag::register(SIGINT, it.set.clone()))
            .map_err(|e| Error::io("handle", "interrupts from the terminal", e))?;
        Ok(it)
    }

    /// Between answers.
    fn wait(&self) {
        self.ends.store(!self.edited, Relaxed);
    }

    /// Before an answer.
    fn arm(&self) {
        self.ends.store(false, Relaxed);
        self.set.store(false, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.set.load(Relaxed)
    }
}
