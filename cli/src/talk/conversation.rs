//! The messages of a conversation, and the prompt that they are for a model.

use crate::args::TalkArgs;
use crate::loaded::{GenOptions, Model};
use crate::units::count;
use crate::{Error, texts};
use serde_json::{Map, Value, json};

/// Tokens that an answer without a limit should have room for.
const USUAL_ANSWER: usize = 256;

/// A conversation so far.
pub struct Conversation {
    system: Option<String>,
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

impl Conversation {
    /// Nothing said yet.
    ///
    /// # Errors
    /// The model has no chat template, and none is given; that cannot be read.
    pub fn new(model: &Model, args: &TalkArgs, options: &GenOptions) -> Result<Conversation, Error> {
        let info = model.info();
        if !info.chat_template && args.chat_template.is_none() {
            let message =
                "it has no chat template; give one with --chat-template, or continue plain text with `llmcc run -p`";
            return Err(Error::Artifact { path: model.path().to_owned(), message: message.into() });
        }
        let mut variables: Map<String, Value> = args.template_var.iter().cloned().collect();
        if let Some(file) = &args.chat_template {
            variables.insert("chat_template".into(), texts::read(file)?.into());
        }
        let limit = if info.cache_tokens > 0 { info.max_context.min(info.cache_tokens) } else { info.max_context };
        let (system, images) = (args.system.clone(), options.grids.clone());
        let mut new = Conversation { system, variables, turns: vec![], limit, room: 0, images };
        new.leave_room(options);
        Ok(new)
    }

    /// Leaves room for answers of such options.
    pub fn leave_room(&mut self, options: &GenOptions) {
        let wanted = if options.max_tokens == 0 { USUAL_ANSWER } else { options.max_tokens as usize };
        self.room = self.limit.saturating_sub(wanted.min(self.limit / 4).max(1));
    }

    /// Tokens that model and cache have room for.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Tokens that a prompt may have.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Sets the system message; the turns stay.
    pub fn set_system(&mut self, system: Option<String>) {
        self.system = system;
    }

    /// Messages of the user with the model's answers, in their order.
    pub fn turns(&self) -> &[(String, String)] {
        &self.turns
    }

    /// Adds a turn. (Templates may insist on turns that alternate: one without an answer is none.)
    pub fn add(&mut self, message: &str, answer: String) {
        if !answer.is_empty() {
            self.turns.push((message.to_owned(), answer));
        }
    }

    /// Takes the last turn away.
    pub fn take_last(&mut self) -> Option<(String, String)> {
        self.turns.pop()
    }

    /// Forgets all turns; the system message stays.
    pub fn forget(&mut self) {
        self.turns.clear();
    }

    /// All messages, as templates and other programs have them.
    pub fn messages(&self) -> Vec<Value> {
        self.from(0).collect()
    }

    /// Replaces all messages.
    ///
    /// # Errors
    /// They are no conversation: a system message, or none, and then messages of user and assistant by turns.
    pub fn replace(&mut self, messages: &[Value]) -> Result<(), String> {
        let read = |i: usize, role: &str| {
            let found = &messages[i];
            let text = found["content"].as_str().filter(|_| found["role"] == role);
            text.map(str::to_owned).ok_or_else(|| format!("message {} is not a text of role `{role}`", i + 1))
        };
        let first = usize::from(messages.first().is_some_and(|m| m["role"] == "system"));
        let system = (first == 1).then(|| read(0, "system")).transpose()?;
        if (messages.len() - first) % 2 == 1 {
            return Err("its last message has no answer".into());
        }
        let turn = |i| Ok((read(i, "user")?, read(i + 1, "assistant")?));
        let turns = (first..messages.len()).step_by(2).map(turn).collect::<Result<_, String>>()?;
        (self.system, self.turns) = (system, turns);
        Ok(())
    }

    /// The system message, and the turns without the first `without`.
    fn from(&self, without: usize) -> impl Iterator<Item = Value> {
        let system = self.system.iter().map(|text| json!({ "role": "system", "content": text }));
        system.chain(self.turns[without..].iter().flat_map(|(user, assistant)| {
            [json!({ "role": "user", "content": user }), json!({ "role": "assistant", "content": assistant })]
        }))
    }

    /// Tokens of the conversation without the first `without` turns, and with a new message.
    fn tokens(&self, model: &Model, without: usize, line: &str) -> Result<Vec<i32>, Error> {
        let new = match self.images.len() {
            0 => json!({ "role": "user", "content": line }),
            // As the templates of models that see have it: images first, then the text.
            n => {
                let images = std::iter::repeat_n(json!({ "type": "image" }), n);
                let parts: Vec<Value> = images.chain([json!({ "type": "text", "text": line })]).collect();
                json!({ "role": "user", "content": parts })
            }
        };
        let messages: Vec<Value> = self.from(without).chain([new]).collect();
        let mut conversation = self.variables.clone();
        conversation.insert("messages".into(), messages.into());
        let mut prompt = model.apply_chat_template(&Value::Object(conversation).to_string())?;
        if !self.images.is_empty() {
            prompt = model.image_prompt(&prompt, &self.images)?;
        }
        model.tokenize(&prompt, false)
    }

    /// Tokens of the conversation with a new message; the oldest turns are forgotten if they do not
    /// fit, the system message never.
    ///
    /// # Errors
    /// The message alone is too long; the template refuses it.
    pub fn fit(&mut self, model: &Model, line: &str) -> Result<Vec<i32>, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Conversation {
        let (system, variables) = (Some("old".into()), Map::new());
        Conversation { system, variables, turns: vec![], limit: 100, room: 0, images: vec![] }
    }

    #[test]
    fn messages_are_saved_and_loaded() {
        let mut talk = empty();
        talk.add("a", "b".into());
        talk.add("unanswered", String::new());
        let all = talk.messages();
        assert_eq!(all.len(), 3);
        let mut other = empty();
        other.replace(&all).unwrap();
        assert_eq!((other.system(), other.turns()), (Some("old"), &[("a".into(), "b".into())][..]));
        other.replace(&all[1..]).unwrap();
        assert_eq!(other.system(), None);
        other.replace(&[]).unwrap();
        assert!(other.turns().is_empty());
        for (bad, says) in [
            (&all[..2], "no answer"),
            (&[all[1].clone(), all[1].clone()], "message 2 is not a text of role `assistant`"),
            (&[json!({ "role": "user", "content": [] }), all[2].clone()], "message 1"),
            (&[json!(1), json!(2)], "message 1"),
        ] {
            assert!(talk.replace(bad).unwrap_err().contains(says));
            assert_eq!(talk.turns().len(), 1, "nothing changed");
        }
    }

    #[test]
    fn answers_have_room() {
        let mut talk = empty();
        talk.leave_room(&GenOptions::default());
        assert_eq!(talk.room(), 75);
        talk.leave_room(&GenOptions { max_tokens: 10, ..GenOptions::default() });
        assert_eq!(talk.room(), 90);
    }
}
