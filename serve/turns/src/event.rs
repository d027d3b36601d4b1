//! Parts of a turn.

/// Something that a model wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Text of its answer.
    Text(String),
    /// Text of its reasoning.
    Reasoning(String),
    /// A call of a tool begins.
    Call {
        /// Its place among the calls of the turn.
        index: usize,
        /// Its identifier, if the model wrote one.
        id: Option<String>,
        /// The tool.
        name: String,
    },
    /// Arguments of a call: a text of JSON.
    Arguments {
        /// The call.
        index: usize,
        /// The next part of the text.
        text: String,
    },
    /// A call has ended.
    End {
        /// The call.
        index: usize,
    },
}

/// The same events, with one text for texts that follow each other.
pub fn merged(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = vec![];
    events.into_iter().for_each(|event| add(&mut all, event));
    all
}

/// Adds an event. A text joins the one before it.
pub(crate) fn add(all: &mut Vec<Event>, event: Event) {
    match (all.last_mut(), event) {
        (_, Event::Text(new) | Event::Reasoning(new)) if new.is_empty() => {}
        (Some(Event::Text(old)), Event::Text(new)) | (Some(Event::Reasoning(old)), Event::Reasoning(new)) => {
            old.push_str(&new);
        }
        (_, event) => all.push(event),
    }
}
